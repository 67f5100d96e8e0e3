"""Tests of PPO: learning, penalties, statistics, and non-finite numbers."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from rl_envs import PointReachEnv
from safetensors.torch import load as parse_tensors

from embodied_rm.checkpoint_io import to_safetensors
from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.rl.learner import ppo as ppo_module
from embodied_rm.rl.learner.buffer import PPOBatch, RolloutBuffer, collect
from embodied_rm.rl.learner.demo_pairs import DemoPairs
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec, ValueCritic, gaussian_kl
from embodied_rm.rl.learner.ppo import PPO, PPOConfig, explained_variance
from embodied_rm.rl.watch.evaluate_policy import evaluate_policy
from embodied_rm.threads import run_concurrently

SPEC = PolicySpec(obs_dim=2, action_dim=2, hidden=(32,), log_std_init=-0.5)
CONFIG = PPOConfig(gamma=0.95, actor_learning_rate=3e-3, critic_learning_rate=3e-3, num_minibatches=4)


def learner(config: PPOConfig = CONFIG, spec: PolicySpec = SPEC, seed: int = 0) -> PPO:
    torch.manual_seed(seed)
    critic = ValueCritic(spec.obs_dim, spec.hidden)
    return PPO(GaussianPolicy(spec), critic, config, torch.Generator().manual_seed(seed))


def bandit(ppo: PPO, size: int = 512, reward=lambda action: -((action - 0.5) ** 2).sum(1)) -> PPOBatch:
    """One-step episodes in which the best action is 0.5 in every dimension, whatever the observation."""
    buffer = RolloutBuffer(1, size, 2, 2, 2)
    observation = np.random.default_rng(0).normal(size=(size, 2)).astype(np.float32)
    action, log_prob = ppo.policy.sample(observation, ppo.generator)
    yes = np.ones(size, bool)
    buffer.add(
        observation=observation,
        critic_observation=observation,
        next_critic_observation=observation,
        potential=np.zeros(size),
        next_potential=np.zeros(size),
        action=action,
        log_prob=log_prob,
        reward=reward(action),
        terminated=yes,
        done=yes,
        valid=yes,
    )
    return buffer.make_batch(ppo.critic, 0.9, 0.9)


def weights(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for p in module.parameters()])


def test_bandit() -> None:
    ppo = learner()
    for _ in range(30):
        ppo.update(bandit(ppo))
    assert np.allclose(ppo.policy.act(np.random.default_rng(1).normal(size=(20, 2))), 0.5, atol=0.1)


class Rewarded(PointReachEnv):
    """`PointReachEnv` with SAME_STEP autoreset and the negative distance as the reward."""

    def step(self, actions):
        observation, _, terminated, truncated, _ = super().step(actions)
        none = np.zeros(self.num_envs)
        infos = {"final_obs": observation, "potential": none, "next_potential": none, "valid_transition": none == 0}
        reward = -np.linalg.norm(self.position, axis=1)
        following = self.reset(options={"reset_mask": truncated})[0] if truncated.any() else observation
        return following, reward, terminated, truncated, infos


def test_update_is_bit_identical_on_one_and_two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Minibatches of 128 states are trained concurrently on two cores, and sequentially on one."""
    results, concurrent_runs = [], []
    for available in (1, 2):
        monkeypatch.setattr(ppo_module, "count_cores", lambda available=available: available)
        monkeypatch.setattr(
            ppo_module, "run_concurrently", lambda *both: concurrent_runs.append(1) or run_concurrently(*both)
        )
        ppo = learner()
        stats = [ppo.update(bandit(ppo)) for _ in range(2)]
        results.append((weights(ppo.policy), weights(ppo.critic), stats))
    assert len(concurrent_runs) == 2, "two updates, on two cores"
    (actor, critic, stats), (other_actor, other_critic, other_stats) = results
    assert torch.equal(actor, other_actor) and torch.equal(critic, other_critic) and stats == other_stats


def test_learns_to_reach_from_scratch() -> None:
    ppo = learner()
    env, judge = Rewarded(64), PointReachEnv(64, ends_on_success=True)
    before = evaluate_policy(judge, ppo.policy, 64, seed=1)
    observation, _ = env.reset(seed=0)
    for _ in range(15):
        buffer, observation = collect(env, ppo.policy, observation, 20, ppo.generator)
        ppo.update(buffer.make_batch(ppo.critic, CONFIG.gamma, CONFIG.gae_lambda))
    after = evaluate_policy(judge, ppo.policy, 64, seed=1)
    assert before.rate < 0.1 < 0.95 < after.rate


def test_paused_actor_does_not_change_while_the_critic_learns() -> None:
    ppo = learner()
    before, batch = weights(ppo.policy), bandit(ppo)
    losses = [ppo.update(batch, train_actor=False).critic_loss for _ in range(5)]
    assert torch.equal(weights(ppo.policy), before)
    assert losses[-1] < losses[0]


def test_actor_pauses_beyond_the_target_kl() -> None:
    free, constrained = learner(replace(CONFIG, target_kl=1e9)), learner(replace(CONFIG, target_kl=1e-4))
    assert free.update(bandit(free)).actor_epochs == CONFIG.epochs
    stats = constrained.update(bandit(constrained))
    assert stats.actor_epochs == 1 and stats.kl >= 1e-4


def test_bc_penalty_limits_the_divergence() -> None:
    def distance(coef: float) -> float:
        ppo = learner()
        for _ in range(10):
            stats = ppo.update(bandit(ppo), bc_kl_coef=coef)
        return stats.bc_kl

    assert distance(100.0) < 0.05 * distance(0.0)


@pytest.mark.parametrize("slow_rate", ["actor_learning_rate", "critic_learning_rate"])
def test_actor_and_critic_have_separate_learning_rates(slow_rate: str) -> None:
    ppo = learner(replace(CONFIG, **{slow_rate: 1e-12}))
    before = copy.deepcopy(ppo.policy), copy.deepcopy(ppo.critic)
    ppo.update(bandit(ppo))
    moved = [
        float((weights(a) - weights(b)).abs().max()) for a, b in zip((ppo.policy, ppo.critic), before, strict=True)
    ]
    slow, fast = moved if slow_rate == "actor_learning_rate" else moved[::-1]
    assert slow < 1e-8 < 1e-3 < fast


def test_explained_variance() -> None:
    ppo = learner()
    batch = bandit(ppo)
    with torch.no_grad():
        value = ppo.critic(batch.critic_observation, batch.potential)
    noise = torch.randn(len(batch), generator=torch.Generator().manual_seed(1)) * value.std()
    assert explained_variance(ppo.critic, replace(batch, target=value + 3)) == pytest.approx(1)
    assert explained_variance(ppo.critic, replace(batch, target=value + noise)) == pytest.approx(0.5, abs=0.15)
    assert explained_variance(ppo.critic, replace(batch, target=torch.ones(len(batch)))) == 0
    stats = ppo.update(batch, train_actor=False)
    assert stats.explained_variance == explained_variance(learner().critic, batch)
    assert stats.actor_grad_norm == 0 < stats.critic_grad_norm


def constant_demonstrations(action: float) -> DemoPairs:
    observation = torch.randn(64, 2, generator=torch.Generator().manual_seed(3))
    return DemoPairs(observation=observation, action=torch.full((64, 2), action), weight=torch.ones(64))


def test_imitation_penalty_acts_against_the_reward() -> None:
    """The reward is for 0.5, the demonstrations have 0: a larger coefficient moves the mean to 0, not the noise."""

    def results(coef: float) -> tuple[float, float]:
        ppo = learner()
        ppo.demonstrations = constant_demonstrations(0.0)
        for _ in range(30):
            ppo.update(bandit(ppo), imitation_coef=coef)
        return float(ppo.policy.act(np.zeros((1, 2))).mean()), float(ppo.policy.log_std.detach().mean())

    (free, free_log_std), (mixed, _), (constrained, constrained_log_std) = map(results, (0.0, 0.3, 30.0))
    assert constrained < 0.1 < 0.2 < mixed < free - 0.05
    assert abs(constrained_log_std - free_log_std) < 0.5


def test_kl_statistics() -> None:
    ppo = learner()
    before, batch = copy.deepcopy(ppo.policy), bandit(ppo)
    stats = ppo.update(batch)
    with torch.no_grad():
        moved = gaussian_kl(*ppo.policy(batch.observation), *before(batch.observation)).mean()
    assert stats.kl == pytest.approx(float(moved), abs=1e-6)
    assert stats.bc_kl == stats.kl


@pytest.mark.parametrize(("column", "loss"), [("target", "critic"), ("log_prob", "actor")])
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_non_finite_loss_raises_without_a_step(column: str, loss: str, poison: float) -> None:
    ppo = learner(replace(CONFIG, num_minibatches=1))
    batch = bandit(ppo)
    getattr(batch, column)[3] = -poison
    with pytest.raises(UserError, match=f"the loss of the {loss} became"):
        ppo.update(batch)
    assert torch.isfinite(weights(ppo.policy)).all() and torch.isfinite(weights(ppo.critic)).all()


def test_invalid_transitions_are_not_in_the_batch() -> None:
    """Invalid transitions may have NaN; the batch has none. A rollout without valid transitions raises."""
    buffer = RolloutBuffer(3, 2, 2, 2, 2)
    for t in range(3):
        valid = np.array([t != 1, True])
        buffer.add(
            observation=np.ones((2, 2)),
            next_critic_observation=np.ones((2, 2)),
            potential=np.zeros(2),
            next_potential=np.zeros(2),
            action=np.zeros((2, 2)),
            log_prob=np.zeros(2),
            reward=np.where(valid, 1.0, np.nan),
            terminated=~valid,
            done=~valid,
            valid=valid,
        )
    batch = buffer.make_batch(ValueCritic(2, (8,)), 0.9, 0.9)
    assert len(batch) == 5
    assert torch.isfinite(batch.advantage).all() and torch.isfinite(batch.target).all()
    buffer.valid[:] = False
    with pytest.raises(UserError, match="all 6 transitions"):
        buffer.make_batch(ValueCritic(2, (8,)), 0.9, 0.9)


def test_restored_learner_continues_bit_identically() -> None:
    """Weights, optimizer state and random numbers are restored into a new learner."""
    ppo = learner()
    ppo.update(bandit(ppo))
    saved = parse_tensors(to_safetensors(ppo.state_dict()))
    other = learner(seed=1)
    other.load_state_dict(saved, "here")
    for each in (ppo, other):
        each.update(bandit(each), bc_kl_coef=0.1)
    for name, tensor in ppo.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name


def test_state_of_another_network_raises() -> None:
    with pytest.raises(CheckpointError, match="here"):
        learner(spec=replace(SPEC, hidden=(8,))).load_state_dict(learner().state_dict(), "here")


@pytest.mark.parametrize("setting", ["gamma", "actor_learning_rate", "num_minibatches", "target_kl"])
def test_invalid_settings_raise(setting: str) -> None:
    with pytest.raises(UserError, match=setting):
        PPOConfig(**{setting: 0})
