"""Off-policy learning with recorded transitions: known answers, the replay buffer, and refinements."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rl_envs import ImageModel, PointReachEnv
from test_refine import SPEC, evaluate, weak_policy
from test_resume import play

from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rewards.rules import find_rule
from embodied_rm.rewards.transitions import RewardParams, Transitions
from embodied_rm.rl.iteration import value_range
from embodied_rm.rl.learner.buffer import RolloutBuffer
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec
from embodied_rm.rl.learner.ppo import PPOConfig
from embodied_rm.rl.off_policy.off_policy_config import RLPDConfig
from embodied_rm.rl.off_policy.replay_buffer import ReplayBuffer
from embodied_rm.rl.off_policy.rlpd import RLPD
from embodied_rm.rl.off_policy.smoothness import largest_change
from embodied_rm.rl.offline.transitions import OfflineTransitions
from embodied_rm.rl.refine import refine
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.rl.refine_options import RefineOptions
from embodied_rm.run_folder import NullReporter, RunFolder

NUM_STEPS, NUM_ENVS = 5, 3


def transitions(count: int, obs_dim: int = 2, action_dim: int = 2, seed: int = 0) -> OfflineTransitions:
    """Return transitions that end at once, with random actions, rewarded most for the action 0.5 everywhere."""
    generator = torch.Generator().manual_seed(seed)
    action = 2 * torch.rand(count, action_dim, generator=generator) - 1
    return OfflineTransitions(
        observation=torch.randn(count, obs_dim, generator=generator),
        action=action,
        reward=1 - (action - 0.5).square().mean(1),
        next_observation=torch.randn(count, obs_dim, generator=generator),
        terminated=torch.ones(count, dtype=torch.bool),
        potential=torch.zeros(count),
        episode_index=torch.zeros(count, dtype=torch.int64),
    )


def make_chain(states: torch.Tensor, repeats: int = 50) -> OfflineTransitions:
    """Return three states [3, D] in a row, an action without effect, 1 at the end: values gamma^2, gamma, 1."""
    count = 3 * repeats
    return OfflineTransitions(
        observation=states.repeat(repeats, 1),
        action=torch.zeros(count, 2),
        reward=torch.tensor([0.0, 0.0, 1.0]).repeat(repeats),
        next_observation=states.roll(-1, 0).repeat(repeats, 1),
        terminated=torch.tensor([False, False, True]).repeat(repeats),
        potential=torch.zeros(count),
        episode_index=torch.zeros(count, dtype=torch.int64),
    )


def make_rollout(obs_dim: int = 2, action_dim: int = 2, first: int = 0) -> RolloutBuffer:
    """Return a rollout whose rewards are consecutive numbers; the second environment's third step diverged."""
    buffer = RolloutBuffer(NUM_STEPS, NUM_ENVS, obs_dim, action_dim, obs_dim)
    buffer.reward[:] = first + np.arange(NUM_STEPS * NUM_ENVS).reshape(NUM_STEPS, NUM_ENVS)
    buffer.critic_observation[:] = buffer.reward[..., None]
    buffer.observation[:] = buffer.reward[..., None]
    buffer.valid[:] = True
    buffer.valid[2, 1] = False
    buffer.t = NUM_STEPS
    return buffer


SMALL = {"batch_size": 64, "num_critics": 3, "critic_hidden_sizes": (32, 32)}
FAST = {"recorded_share": 1.0, "updates_per_step": 20.0, "learning_rate": 3e-3}


def make_learner(recorded: OfflineTransitions, **config: object) -> RLPD:
    torch.manual_seed(0)
    policy = GaussianPolicy(replace(SPEC, obs_dim=recorded.observation.shape[1]))
    settings = RLPDConfig(**{"pretraining_updates": 0, "bc_kl_coef": 0.0, **SMALL, **config})  # type: ignore[arg-type]
    return RLPD(policy, recorded, settings, gamma=0.9, seed=0)


def test_the_policy_finds_the_best_action() -> None:
    learner = make_learner(transitions(2000), num_critics=6, critic_hidden_sizes=(64, 64), **FAST)
    stats = learner.update(make_rollout(), train_policy=True)
    assert stats.updates == 20 * NUM_STEPS * NUM_ENVS
    mean_action = learner.policy(torch.randn(200, 2))[0]
    assert torch.allclose(mean_action.mean(0), torch.full((2,), 0.5), atol=0.06)
    assert stats.q_policy > stats.q_recorded > 0


def test_critics_learn_the_value_of_a_chain() -> None:
    states = torch.eye(3)
    learner = make_learner(make_chain(states), target_noise=0.0, target_update_rate=0.05, **FAST)
    learner.update(make_rollout(obs_dim=3), train_policy=False)
    values = learner.critics(learner.policy.normalizer(states), torch.zeros(3, 2)).mean(0)
    assert torch.allclose(values, torch.tensor([0.81, 0.9, 1.0]), atol=0.03)
    learner.value_range = (-1.0, 0.5)
    learner.update(make_rollout(obs_dim=3), train_policy=False)
    values = learner.critics(learner.policy.normalizer(states), torch.zeros(3, 2)).mean(0)
    assert torch.allclose(values, torch.tensor([0.405, 0.45, 0.5]), atol=0.03)


def test_the_value_of_a_late_success_reaches_the_start() -> None:
    """The minimum over all Q-functions, taken anew at each of 20 steps, leaves nothing of it."""
    length, gamma = 20, 0.98
    generator = torch.Generator().manual_seed(0)
    rows = torch.arange(5 * length)
    position = torch.stack([rows % length / length, torch.zeros(len(rows))], 1)
    recorded = OfflineTransitions(
        observation=position + 0.02 * torch.randn(len(rows), 2, generator=generator),
        action=0.3 * torch.randn(len(rows), 2, generator=generator),
        reward=(rows % length == length - 1).float(),
        next_observation=position + torch.tensor([1 / length, 0.0]),
        terminated=rows % length == length - 1,
        potential=torch.zeros(len(rows)),
        episode_index=rows // length,
    )
    sizes = {**SMALL, "num_critics": 10, "learning_rate": 2e-3, "target_update_rate": 0.05}
    values = {}
    for num_min_critics in (1, 10):
        config = RLPDConfig(
            recorded_share=1.0,
            num_min_critics=num_min_critics,
            updates_per_step=40.0,
            pretraining_updates=0,
            **sizes,
        )  # type: ignore[arg-type]
        torch.manual_seed(0)
        learner = RLPD(GaussianPolicy(replace(SPEC, obs_dim=2)), recorded, config, gamma, 0, (0, 1))
        learner.update(make_rollout(), train_policy=False)
        start = learner.policy.normalizer(torch.zeros(1, 2))
        values[num_min_critics] = float(learner.critics(start, torch.zeros(1, 2)).mean().detach())
    assert values[1] == pytest.approx(gamma ** (length - 1), abs=0.15)
    assert values[10] < 0.2


@pytest.mark.parametrize("rule", ["shaped", "dense", "sparse"])
def test_returns_lie_in_the_range_of_values(rule: str) -> None:
    config = RewardConfig(rule=rule, progress_scale=0.7, success_reward=2.0, success_source="simulator")
    low, high = value_range(find_rule(rule), config)
    rng, gamma, length = np.random.default_rng(0), 0.97, 30
    for succeeds in (False, True):
        potential = rng.random((length + 1, 500))
        last = np.arange(length)[:, None] == length - 1
        is_end = np.broadcast_to(last, (length, 500))
        transitions = Transitions(
            task_reward=2.0 * (is_end & succeeds),
            is_success=is_end & succeeds,
            terminated=is_end,
            done=is_end,
            potential=potential[:-1],
            next_potential=potential[1:],
            potential_change=np.diff(potential, axis=0),
            success_prob=np.zeros((length, 500)),
        )
        rewards = find_rule(rule).compute(transitions, RewardParams(gamma=gamma, scale=0.7))
        returns = (gamma ** np.arange(length)[:, None] * rewards).sum(0)
        assert low <= returns.min() and returns.max() <= high
    assert value_range(find_rule("raw"), config) == (-np.inf, np.inf)


@pytest.mark.parametrize("pessimism", [0.0, 1.0, 2.5])
def test_the_policy_maximizes_a_lower_bound_of_the_ensemble(pessimism: float) -> None:
    learner, batch = make_learner(transitions(64), pessimism=pessimism), transitions(64, seed=1)
    loss, mean_value = learner.policy_loss(batch)
    observation = learner.policy.normalizer(batch.observation)
    values = learner.critics(observation, learner.policy(batch.observation)[0]).detach().numpy()
    assert loss.item() == pytest.approx(-(values.mean(0) - pessimism * values.std(0)).mean(), abs=1e-5)
    assert np.allclose(mean_value.detach(), values.mean(0), atol=1e-5)


def test_the_reference_follows_the_policy_slowly() -> None:
    """With a reference that stays, the penalty keeps the policy near it; one that follows lets it reach the optimum."""
    settings = {**FAST, "updates_per_step": 30.0, "bc_kl_coef": 0.5, "critic_hidden_sizes": (64, 64)}
    distances = []
    for rate in (0.0, 0.2):
        learner = make_learner(transitions(2000), reference_update_rate=rate, **settings)
        before = learner.policy(torch.zeros(1, 2))[0].detach()
        learner.update(make_rollout(), train_policy=True)
        distances.append(float((learner.policy(torch.zeros(1, 2))[0] - 0.5).norm().detach()))
        reference = learner.reference(torch.zeros(1, 2))[0]
        assert torch.equal(reference, before) == (rate == 0.0)
        assert torch.equal(learner.imitated(torch.zeros(1, 2))[0], before)
    assert distances[1] < 0.1 < distances[0]


def test_the_largest_change_is_found_near_each_state() -> None:
    """A linear function changes by at most the radius times the sum of its absolute slopes."""
    slopes, states = torch.tensor([3.0, -2.0]), torch.randn(500, 2)
    slopes.requires_grad_()
    change = largest_change(lambda s: ((s - states) @ slopes).abs(), states, 0.1, torch.Generator().manual_seed(0))
    assert (change <= 0.1 * 5 + 1e-6).all() and change.max() > 0.45
    mean_of_one_sample = 0.1 * (3 * 0.5 + 2 * 2 / (6 * 3))  # E|3u + 2v| of uniform u, v in [-1, 1]
    assert change.mean() > 1.3 * mean_of_one_sample
    change.mean().backward()
    assert slopes.grad is not None and slopes.grad[0] > 0 > slopes.grad[1]


def test_smoothness_flattens_critics_between_near_states() -> None:
    recorded = transitions(256)
    recorded = replace(recorded, reward=torch.sign(recorded.observation[:, 0]))
    slopes = []
    for weight in (0.0, 5.0):
        learner = make_learner(recorded, smoothness_coef=weight, smoothness_radius=0.3, **FAST)
        learner.update(make_rollout(), train_policy=False)
        states = torch.stack([torch.linspace(-2, 2, 400), torch.zeros(400)], dim=1)
        values = learner.critics(learner.policy.normalizer(states), torch.zeros(400, 2)).mean(0)
        slopes.append(float(values.diff().abs().max().detach()))
    assert slopes[1] < 0.7 * slopes[0]


def test_a_policy_beyond_the_bounds_of_actions_is_led_back() -> None:
    learner, batch = make_learner(transitions(64)), transitions(64, seed=1)
    with torch.no_grad():
        learner.policy.mlp[-1].bias.fill_(3.0)  # type: ignore[union-attr]
    learner.policy_loss(batch)[0].backward()
    assert (learner.policy.mlp[-1].bias.grad > 0).all()  # type: ignore[union-attr]


def test_the_divergence_from_the_imitated_policy_is_in_the_loss_and_bounds_it() -> None:
    """The same updates diverge less the more it weighs; at the imitated policy it is 0."""
    learners, batch = [make_learner(transitions(64), bc_kl_coef=coef) for coef in (0.0, 3.0)], transitions(64, seed=1)
    losses = [learner.policy_loss(batch)[0].item() for learner in learners]
    assert losses[0] == pytest.approx(losses[1])
    with torch.no_grad():
        for learner in learners:
            learner.policy.mlp[-1].bias += 0.1  # type: ignore[operator]
    losses = [learner.policy_loss(batch)[0].item() for learner in learners]
    variance = float(learners[0].policy.log_std.detach()[0].exp().square())
    assert losses[1] - losses[0] == pytest.approx(3.0 * 2 * 0.1**2 / (2 * variance), rel=1e-3)
    divergence = []
    for coef in (0.0, 1.0, 10.0):
        learner = make_learner(transitions(500), bc_kl_coef=coef, **{**FAST, "updates_per_step": 10.0})
        divergence.append(learner.update(make_rollout(), train_policy=True).bc_kl)
    assert divergence[0] > divergence[1] > divergence[2]


def test_critics_are_trained_before_the_policy_after_the_first_rollout_only() -> None:
    learner = make_learner(transitions(64), recorded_share=1.0, pretraining_updates=300, updates_per_step=1.0)
    first = learner.update(make_rollout(), train_policy=False)
    assert first.updates == NUM_STEPS * NUM_ENVS and first.critic_loss < 0.2
    unprepared = make_learner(transitions(64), recorded_share=1.0, updates_per_step=1.0)
    assert unprepared.update(make_rollout(), train_policy=False).critic_loss > 2 * first.critic_loss
    steps = learner.critics_optimizer.state_dict()["step"]
    learner.update(make_rollout(), train_policy=True)
    assert learner.critics_optimizer.state_dict()["step"] - steps == NUM_STEPS * NUM_ENVS


def test_without_training_the_policy_does_not_change() -> None:
    learner = make_learner(transitions(64))
    before = {name: tensor.clone() for name, tensor in learner.policy.state_dict().items()}
    stats = learner.update(make_rollout(), train_policy=False)
    assert stats.kl == stats.bc_kl == stats.q_policy == 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner.policy.state_dict().items())
    assert learner.update(make_rollout(), train_policy=True).kl > 0


def test_a_reward_that_is_not_finite_takes_no_step() -> None:
    recorded = transitions(64)
    recorded.reward[:] = torch.nan
    learner = make_learner(recorded)
    before = [parameter.clone() for parameter in learner.critics.parameters()]
    with pytest.raises(UserError, match=r"the loss of the critics became nan .* lower rlpd\.learning_rate=0\.0003"):
        learner.update(make_rollout(), train_policy=True)
    assert all(torch.equal(a, b) for a, b in zip(before, learner.critics.parameters(), strict=True))


def test_the_replay_buffer_keeps_the_last_valid_transitions() -> None:
    buffer, generator = ReplayBuffer(20, 2, 2), torch.Generator().manual_seed(0)
    buffer.add(make_rollout())
    assert len(buffer) == NUM_STEPS * NUM_ENVS - 1
    assert set(buffer.sample(500, generator).reward.tolist()) == set(range(15)) - {7}
    buffer.add(make_rollout(first=100))
    assert len(buffer) == 20
    sample = buffer.sample(2000, generator)
    assert set(sample.reward.tolist()) == {9, 10, 11, 12, 13, 14, *(set(range(100, 115)) - {107})}
    assert torch.equal(sample.observation[:, 0], sample.reward)
    small = ReplayBuffer(4, 2, 2)
    small.add(make_rollout())
    assert set(small.sample(200, generator).reward.tolist()) == {11, 12, 13, 14}


def test_a_stored_replay_buffer_is_restored_or_refused() -> None:
    buffer, copy = ReplayBuffer(20, 2, 2), ReplayBuffer(20, 2, 2)
    for first in (0, 100):
        buffer.add(make_rollout(first=first))
    copy.load_state_dict(buffer.state_dict(), "x")
    for both in (buffer, copy):
        both.add(make_rollout(first=200))
    first, second = (b.sample(300, torch.Generator().manual_seed(1)) for b in (buffer, copy))
    assert torch.equal(first.reward, second.reward) and torch.equal(first.observation, second.observation)
    with pytest.raises(CheckpointError, match="run/x: the stored replay buffer does not fit this one: observation"):
        ReplayBuffer(20, 3, 2).load_state_dict(buffer.state_dict(), "run/x")
    with pytest.raises(CheckpointError, match="run/x: the stored replay buffer has reward"):
        copy.load_state_dict({"reward": torch.zeros(3)}, "run/x")


CONFIG = RefineConfig(
    algorithm="rlpd",
    iterations=12,
    rollout_steps=10,
    critic_warmup_iterations=1,
    reward=RewardConfig(success_patience=4),
    ppo=PPOConfig(gamma=0.95),
    rlpd=RLPDConfig(
        batch_size=64,
        updates_per_step=0.5,
        pretraining_updates=0,
        learning_rate=1e-3,
        critic_hidden_sizes=(32, 32),
        num_critics=2,
        bc_kl_coef=0.0,
    ),
)


def reach_transitions() -> OfflineTransitions:
    """Return random transitions of `PointReachEnv` without a success, rewarded as its reward model does."""
    transition = transitions(400)
    return replace(transition, reward=torch.zeros(400), terminated=torch.zeros(400, dtype=torch.bool))


def test_a_weak_policy_improves(tmp_path: Path) -> None:
    run, options = RunFolder.open(tmp_path, resume=False), RefineOptions(recorded=reach_transitions())
    config = replace(CONFIG, rlpd=replace(CONFIG.rlpd, recorded_share=0.1))
    result = refine(PointReachEnv(32), weak_policy(), ImageModel(), config, run, NullReporter(), evaluate, options)
    assert result.cloned_eval is not None and result.refined_eval is not None
    assert result.refined_eval.rate > result.cloned_eval.rate + 0.2
    assert {"kl", "bc_kl", "critic_loss", "q_recorded", "q_policy", "updates"} <= result.log_rows[-1].keys()


def test_a_resumed_run_is_bit_identical(tmp_path: Path) -> None:
    settings = {
        "algorithm": "rlpd",
        "rlpd": RLPDConfig(
            batch_size=16,
            num_critics=2,
            critic_hidden_sizes=(8,),
            policy_delay=5,
            buffer_capacity=50,
            pretraining_updates=10,
        ),
    }
    reward = RewardConfig(success_patience=2, success_threshold=0.2)
    uninterrupted = play(tmp_path / "uninterrupted", "lift_cube", reward, **settings)
    for steps in (13, 20, 9):
        with pytest.raises(KeyboardInterrupt):
            play(tmp_path / "resumed", "lift_cube", reward, steps, **settings)
    resumed = play(tmp_path / "resumed", "lift_cube", reward, **settings)
    assert uninterrupted.keys() == resumed.keys() and any("replay" in name for name in resumed)
    assert all(torch.equal(uninterrupted[name], resumed[name]) for name in uninterrupted)


@pytest.mark.parametrize(
    ("recorded", "reward", "policy", "message"),
    [
        (None, {}, SPEC, "algorithm=rlpd learns from recorded episodes: name them"),
        (transitions(9, obs_dim=3), {}, SPEC, "states of size 3 and actions of size 2, the policy 2 and 2"),
        (transitions(9), {"rule": "redistributed"}, SPEC, "needs a rule that is known step by step"),
        (transitions(9), {}, replace(SPEC, obs_mode="proprio+embeddings"), "for policies of the state on the CPU"),
    ],
)
def test_what_the_algorithm_does_not_support_is_refused(
    tmp_path: Path, recorded: OfflineTransitions | None, reward: dict[str, str], policy: PolicySpec, message: str
) -> None:
    config = replace(CONFIG, reward=replace(CONFIG.reward, **reward))
    run, options = RunFolder.open(tmp_path, resume=False), RefineOptions(recorded=recorded)
    with pytest.raises(UserError, match=message):
        refine(PointReachEnv(4), GaussianPolicy(policy), ImageModel(), config, run, NullReporter(), None, options)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("batch_size", 0),
        ("updates_per_step", 0),
        ("recorded_share", 1.1),
        ("target_update_rate", 0),
        ("pessimism", -1),
        ("critic_hidden_sizes", (8, 0)),
    ],
)
def test_settings_out_of_range_are_refused(key: str, value: float) -> None:
    with pytest.raises(UserError, match=f"{key} must be"):
        RLPDConfig(**{key: value})  # type: ignore[arg-type]
