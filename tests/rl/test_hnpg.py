"""Hybrid natural policy gradient: values of recorded states under the present policy, in PPO's critic."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rl_envs import ImageModel, PointReachEnv
from test_refine import SPEC, evaluate, weak_policy
from test_rlpd import make_chain, make_rollout, transitions

from embodied_rm.errors import UserError
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.learner.buffer import PPOBatch, RolloutBuffer
from embodied_rm.rl.learner.policy import GaussianPolicy, ValueCritic
from embodied_rm.rl.learner.ppo import PPO, PPOConfig
from embodied_rm.rl.off_policy import hnpg
from embodied_rm.rl.off_policy.hnpg import HNPG
from embodied_rm.rl.off_policy.off_policy_config import HNPGConfig
from embodied_rm.rl.offline.transitions import OfflineTransitions
from embodied_rm.rl.refine import refine
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.rl.refine_options import RefineOptions
from embodied_rm.run_folder import NullReporter, RunFolder

PPO_CONFIG = PPOConfig(gamma=0.9, num_minibatches=2, epochs=4)
NUM_CHOICES = 600


@pytest.fixture
def small_q_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """These problems need neither the usual sizes nor as many updates; the values of a chain are learned with both."""
    for name, value in (("HIDDEN_SIZES", (32, 32)), ("TRANSITIONS_PER_UPDATE", 64), ("FIRST_UPDATES", 600)):
        monkeypatch.setattr(hnpg, name, value)


def rewarded_by_action() -> OfflineTransitions:
    """Return transitions that end at once, with uniform actions, whose reward is the first action."""
    recorded = transitions(NUM_CHOICES)
    return replace(recorded, reward=recorded.action[:, 0], potential=torch.full((NUM_CHOICES,), 0.25))


def as_rollout(recorded: OfflineTransitions) -> RolloutBuffer:
    buffer = RolloutBuffer(len(recorded), 1, 2, 2, 2)
    for name, column in (
        ("observation", recorded.observation),
        ("critic_observation", recorded.observation),
        ("next_critic_observation", recorded.next_observation),
        ("action", recorded.action),
        ("reward", recorded.reward),
        ("terminated", recorded.terminated),
    ):
        getattr(buffer, name)[:, 0] = column.numpy()
    buffer.valid[:], buffer.t = True, len(recorded)
    return buffer


def make_batch(count: int = 32) -> PPOBatch:
    generator = torch.Generator().manual_seed(4)
    observation, action = (torch.randn(count, 2, generator=generator) for _ in range(2))
    return PPOBatch(
        observation=observation,
        critic_observation=observation,
        potential=torch.zeros(count),
        action=action,
        log_prob=torch.full((count,), -2.0),
        advantage=torch.randn(count, generator=generator),
        advantage_std=1.0,
        target=torch.zeros(count),
    )


def networks(mean_action: float = 0.0) -> tuple[GaussianPolicy, ValueCritic]:
    torch.manual_seed(0)
    policy, critic = GaussianPolicy(replace(SPEC, log_std_init=-3.0)), ValueCritic(2, (32,))
    with torch.no_grad():
        policy.mlp[-1].bias[0] = mean_action
    return policy, critic


def make_hnpg(recorded: OfflineTransitions, mean_action: float = 0.0, **config: float) -> HNPG:
    return HNPG(*networks(mean_action), recorded, PPO_CONFIG, HNPGConfig(**config), 0)  # type: ignore[arg-type]


@pytest.mark.usefixtures("small_q_functions")
@pytest.mark.parametrize("mean_action", [-0.6, 0.1, 0.7])
def test_recorded_states_have_the_value_of_the_present_policy_not_of_the_recorded_one(mean_action: float) -> None:
    recorded = rewarded_by_action()
    learner = make_hnpg(recorded, mean_action, learning_rate=3e-3)
    learner.fit_recorded(as_rollout(recorded), shaping_scale=2.0)
    learner.update(make_batch(), train_actor=False)
    values = learner._recorded_values
    assert values.mean() == pytest.approx(mean_action + 2.0 * 0.25, abs=0.08), "without shaping: plus the potential"
    for _ in range(60):
        learner.update(make_batch(), train_actor=False)
    with torch.no_grad():
        learned = learner.critic(recorded.observation, recorded.potential)
    assert learned.mean() == pytest.approx(float(values.mean()), abs=0.1), "no state of the batch is recorded"


CHAIN = make_chain(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), 60)


def test_values_of_a_chain_are_discounted() -> None:
    learner = make_hnpg(CHAIN)
    learner.fit_recorded(as_rollout(CHAIN), shaping_scale=0.0)
    assert torch.allclose(learner._recorded_values[:3], torch.tensor([0.81, 0.9, 1.0]), atol=0.05)


@pytest.mark.usefixtures("small_q_functions")
def test_values_of_a_chain_stay_in_their_range() -> None:
    bounded = HNPG(*networks(), CHAIN, PPO_CONFIG, HNPGConfig(learning_rate=3e-3), 0, (-1.0, 0.5))
    bounded.fit_recorded(as_rollout(CHAIN), shaping_scale=0.0)
    assert torch.allclose(bounded._recorded_values[:3], torch.tensor([0.405, 0.45, 0.5]), atol=0.05)


@pytest.mark.usefixtures("small_q_functions")
def test_without_weight_of_the_recorded_states_it_is_ppo() -> None:
    policy, critic = networks()
    ppo = PPO(copy.deepcopy(policy), copy.deepcopy(critic), PPO_CONFIG, torch.Generator().manual_seed(0))
    hybrid = HNPG(policy, critic, rewarded_by_action(), PPO_CONFIG, HNPGConfig(recorded_coef=1e-12), 0)
    hybrid.fit_recorded(make_rollout(), shaping_scale=1.0)
    for learner in (ppo, hybrid):
        learner.update(make_batch(), bc_kl_coef=0.1)
    for name in ("policy", "critic"):
        expected = getattr(ppo, name).state_dict()
        for key, value in getattr(hybrid, name).state_dict().items():
            assert torch.allclose(value, expected[key], atol=1e-6), f"{name}.{key}"


@pytest.mark.usefixtures("small_q_functions")
def test_a_weak_policy_improves_beside_useless_recordings(tmp_path: Path) -> None:
    """The recorded states are not those of the task, and nothing was ever reached there."""
    config = RefineConfig(
        algorithm="hnpg",
        iterations=14,
        rollout_steps=20,
        reward=RewardConfig(success_patience=4),
        ppo=PPOConfig(gamma=0.95, actor_learning_rate=1e-3, num_minibatches=8),
        hnpg=HNPGConfig(updates=20),
    )
    useless = replace(transitions(400), reward=torch.zeros(400), terminated=torch.zeros(400, dtype=torch.bool))
    run, options = RunFolder.open(tmp_path, resume=False), RefineOptions(recorded=useless)
    result = refine(PointReachEnv(64), weak_policy(), ImageModel(), config, run, NullReporter(), evaluate, options)
    assert result.cloned_eval is not None and result.refined_eval is not None
    assert result.cloned_eval.rate < 0.5 and result.refined_eval.rate > 0.9


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        ({"rule": "redistributed"}, "algorithm=hnpg needs a rule that is known step by step"),
        ({"rule": "sparse"}, "set reward.rule=shaped or reward.success_source=simulator"),
    ],
)
def test_rules_without_recorded_potentials_are_refused(tmp_path: Path, reward: dict[str, str], message: str) -> None:
    config = RefineConfig(algorithm="hnpg", reward=RewardConfig(**reward))
    run, options = RunFolder.open(tmp_path, resume=False), RefineOptions(recorded=transitions(9))
    with pytest.raises(UserError, match=message):
        refine(PointReachEnv(4), GaussianPolicy(SPEC), ImageModel(), config, run, NullReporter(), None, options)


def test_settings_out_of_range_are_refused() -> None:
    for key, value in (("recorded_coef", 0.0), ("learning_rate", -1.0), ("updates", 0)):
        with pytest.raises(UserError, match=f"{key} must be"):
            HNPGConfig(**{key: value})
