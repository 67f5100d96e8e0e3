"""Implicit step rewards: a policy is trained so that its log ratio orders episodes as outcomes or preferences do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from embodied_rm.rewards.transitions import Transitions
from embodied_rm.rl.credit.implicit_reward import BETA, ImplicitLoss, ImplicitReward
from embodied_rm.rl.learner.buffer import RolloutBuffer
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec, log_prob

ROWS, STEPS = 64, 6
SPEC = PolicySpec(obs_dim=2, action_dim=1, hidden=(16,), log_std_init=0.0)


@pytest.fixture
def policy() -> GaussianPolicy:
    torch.manual_seed(0)
    return GaussianPolicy(SPEC)


def episodes(
    policy: GaussianPolicy, seed: int, *, with_successes: bool = True
) -> tuple[RolloutBuffer, Transitions, np.ndarray]:
    """One episode per row, whose quality [N] is the sum of its actions; the better half succeeds."""
    buffer = RolloutBuffer(STEPS, ROWS, obs_dim=2, action_dim=1, critic_obs_dim=2)
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    for t in range(STEPS):
        buffer.observation[t] = rng.normal(size=(ROWS, 2))
        buffer.action[t], buffer.log_prob[t] = policy.sample(buffer.observation[t], generator)
    buffer.valid[:] = True
    quality = buffer.action.sum((0, 2))
    done = np.zeros((STEPS, ROWS), bool)
    done[-1] = True
    is_success = done & (quality > np.median(quality)) & with_successes
    progress = np.zeros((STEPS, ROWS), np.float32)
    progress[-1] = np.argsort(np.argsort(quality)) / ROWS
    transitions = Transitions(
        task_reward=is_success.astype(np.float32),
        is_success=is_success,
        terminated=is_success,
        done=done,
        potential=np.zeros_like(progress),
        next_potential=progress,
        potential_change=progress,
        success_prob=np.zeros_like(progress),
    )
    return buffer, transitions, quality


@pytest.mark.parametrize("loss", ["preferences", "outcomes"])
def test_sums_order_new_episodes_as_their_quality(policy: GaussianPolicy, loss: ImplicitLoss) -> None:
    estimator = ImplicitReward(policy, loss, seed=0)
    for seed in range(6):
        buffer, transitions, quality = episodes(policy, seed)
        sums = estimator.step_rewards(buffer, transitions, policy).sum(0)
    untrained = ImplicitReward(policy, loss, seed=0)
    untrained._fit = lambda: None  # type: ignore[method-assign]
    np.testing.assert_allclose(untrained.step_rewards(buffer, transitions, policy), 0, atol=1e-6)
    assert np.corrcoef(sums, quality)[0, 1] > 0.8
    new_buffer, new_transitions, new_quality = episodes(policy, 100)
    estimator._fit = lambda: None  # type: ignore[method-assign]
    new_sums = estimator.step_rewards(new_buffer, new_transitions, policy).sum(0)
    assert np.corrcoef(new_sums, new_quality)[0, 1] > 0.8


def test_failures_are_ordered_by_their_final_potential(policy: GaussianPolicy) -> None:
    """Without any success, outcomes teach nothing and preferences do."""
    estimator = ImplicitReward(policy, "preferences", seed=0)
    for seed in range(6):
        buffer, transitions, quality = episodes(policy, seed, with_successes=False)
        sums = estimator.step_rewards(buffer, transitions, policy).sum(0)
    assert np.corrcoef(sums, quality)[0, 1] > 0.8


def test_rewards_are_the_log_ratio_of_both_policies(policy: GaussianPolicy) -> None:
    estimator = ImplicitReward(policy, "outcomes", seed=0)
    buffer, transitions, _ = episodes(policy, 0)
    rewards = estimator.step_rewards(buffer, transitions, policy)
    observation, action = torch.from_numpy(buffer.observation), torch.from_numpy(buffer.action)
    with torch.no_grad():
        densities = [log_prob(action, *p(observation)) for p in (estimator.policy, policy)]
    np.testing.assert_allclose(rewards, BETA * (densities[0] - densities[1]), atol=1e-5)


def test_the_imitated_policy_does_not_change(policy: GaussianPolicy) -> None:
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    ImplicitReward(policy, "outcomes", seed=0).step_rewards(*episodes(policy, 0)[:2], policy)
    assert all(torch.equal(value, before[name]) for name, value in policy.state_dict().items())


def test_episodes_that_are_cut_are_not_trained_on(policy: GaussianPolicy) -> None:
    buffer, transitions, _ = episodes(policy, 0)
    transitions.done[:] = False
    estimator = ImplicitReward(policy, "preferences", seed=0)
    np.testing.assert_allclose(estimator.step_rewards(buffer, transitions, policy), 0, atol=1e-6)
