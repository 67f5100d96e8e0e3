"""Tests of heuristic-guided learning: its MDP, its effect, and the value of success."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.client.shaping import shaped_reward
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rewards.rules import find_rule
from embodied_rm.rl.iteration import make_heuristic
from embodied_rm.rl.learner.buffer import PPOBatch, RolloutBuffer
from embodied_rm.rl.learner.gae import gae
from embodied_rm.rl.learner.hurl import Heuristic, heuristic_weight
from embodied_rm.rl.learner.policy import ValueCritic
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.rl.stop_rules import rollouts_until_full_episodes

GAMMA, LAM = 0.9, 0.8
unit = st.floats(0, 1)


@given(seed=st.integers(0, 1000), weight=st.floats(0, 0.99), success_reward=st.floats(0.1, 3))
def test_equals_the_mdp_of_hurl(seed: int, weight: float, success_reward: float) -> None:
    """Reward r + w gamma h(s') and discount (1 - w) gamma (Cheng et al., eq. 4), at every kind of end."""
    rng = np.random.default_rng(seed)
    reward, value, next_value, potential = rng.normal(size=(4, 10, 2))
    terminated, limit, valid = rng.uniform(size=(3, 10, 2)) < np.array([0.2, 0.2, 0.8])[:, None, None]
    ends = (terminated, terminated | limit, valid)
    heuristic = Heuristic(weight=weight, success_reward=success_reward)
    result = gae(
        reward, value, heuristic.mix_next_value(next_value, potential), *ends, GAMMA, heuristic.mix_lambda(LAM)
    )
    hurl_reward = reward + np.where(terminated, 0, weight * GAMMA * success_reward * potential)
    expected = gae(hurl_reward, value, next_value, *ends, (1 - weight) * GAMMA, LAM)
    assert np.allclose(result, expected)


@given(phi=unit, weight=st.floats(0, 0.99), gamma=st.floats(0, 0.999), success_reward=st.floats(0.1, 3))
def test_immediate_success_is_worth_more_than_constant_progress(
    phi: float, weight: float, gamma: float, success_reward: float
) -> None:
    heuristic = Heuristic(weight=weight, success_reward=success_reward)
    held = np.array(0.0)
    for _ in range(3000):
        held = gamma * heuristic.mix_next_value(held, np.array(phi))
    assert held < success_reward


class KnowsFailure(ValueCritic):
    """The value of a policy that never succeeds."""

    def __init__(self) -> None:
        super().__init__(1, (4,))

    def forward(self, observation: torch.Tensor, potential: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(potential)


def failing_rollout(weight: float) -> tuple[PPOBatch, np.ndarray]:
    """Return the batch of a shaped failure with a critic that knows it, and its potentials [T + 1]."""
    phi = np.random.default_rng(0).uniform(size=8).astype(np.float32)
    buffer = RolloutBuffer(7, 1, 1, 1, 1)
    no, one = np.zeros(1, bool), np.zeros((1, 1))
    for t in range(7):
        now, then = phi[t : t + 1], phi[t + 1 : t + 2]
        buffer.add(
            observation=one,
            critic_observation=one,
            next_critic_observation=one,
            potential=now,
            next_potential=then,
            action=one,
            log_prob=np.zeros(1),
            reward=shaped_reward(0.0, now, then, no, GAMMA),
            terminated=no,
            done=np.array([t == 6]),
            valid=~no,
        )
    heuristic = Heuristic(weight=weight, success_reward=1.0) if weight else None
    return buffer.make_batch(KnowsFailure(), GAMMA, LAM, 1.0, heuristic), phi


def test_without_heuristic_a_failing_policy_has_no_advantages() -> None:
    assert failing_rollout(weight=0)[0].advantage_std == pytest.approx(0, abs=1e-6)


def test_with_heuristic_progress_has_advantages() -> None:
    """The targets of the critic have it too."""
    batch, phi = failing_rollout(weight=0.5)
    ahead, carry = [], 0.0
    for t in reversed(range(7)):
        carry = GAMMA * 0.5 * phi[t + 1] + GAMMA * LAM * 0.5 * carry
        ahead.insert(0, carry)
    expected = np.array(ahead)
    assert np.allclose(batch.advantage, (expected - expected.mean()) / expected.std(), atol=1e-4)
    assert np.allclose(batch.target, expected, atol=1e-6)


def final_row(final_potential: float, episodes: int = 10) -> dict[str, float]:
    return {"final_potential": final_potential, "episodes": episodes, "has_full_episodes": True}


def test_weight_of_a_failing_policy_falls_over_time() -> None:
    config = RefineConfig(iterations=10, heuristic_coef=0.2, reward=RewardConfig(success_reward=3.0))
    rows = [{"final_potential": None, "episodes": 0, "has_full_episodes": True}] * 10
    weights = [
        weight_at.weight if (weight_at := make_heuristic(find_rule("shaped"), config, rows[:i])) else 0.0
        for i in range(11)
    ]
    assert weights == pytest.approx([0.2 * (1 - i / 10) for i in range(11)])
    assert make_heuristic(find_rule("shaped"), config, []) == Heuristic(weight=0.2, success_reward=3.0)


def test_weight_depends_on_final_potentials() -> None:
    config = RefineConfig(iterations=10, heuristic_coef=0.2, heuristic_off_at=0.8)

    def weight_at(final_potential: float) -> float:
        rows = [final_row(final_potential)] * 5  # half of the iterations
        heuristic = make_heuristic(find_rule("shaped"), config, rows)
        return 0.0 if heuristic is None else heuristic.weight

    assert weight_at(0.0) == pytest.approx(0.1)
    assert weight_at(0.4) == pytest.approx(0.1 * 3 / 4)
    assert weight_at(0.8) == weight_at(1.0) == 0.0
    recovered = [final_row(1.0), final_row(1.0), *[final_row(0.0)] * 3]
    weight = make_heuristic(find_rule("shaped"), config, recovered)
    assert weight is not None and weight.weight == pytest.approx(0.1), "the last iterations count"


def test_weight_is_that_of_whole_episodes() -> None:
    """Six short rollouts end each episode once: failures together, and successes in the rollouts between."""
    config, shaped = RefineConfig(iterations=1000, heuristic_coef=0.2, heuristic_off_at=0.8), find_rule("shaped")
    empty = {"final_potential": None, "episodes": 0, "has_full_episodes": True}
    few_successes = [final_row(0.4, episodes=90), *[final_row(1.0, episodes=2)] * 5]
    weight = make_heuristic(shaped, config, few_successes * 2, episode_iterations=6)
    assert weight is not None and weight.weight == pytest.approx(0.2 * 0.988 * (1 - (0.46 / 0.8) ** 2))
    assert make_heuristic(shaped, config, [final_row(0.8), *[empty] * 5] * 2, episode_iterations=6) is None, (
        "an iteration in which no episode ended says nothing"
    )


def test_only_ppo_has_a_heuristic() -> None:
    assert make_heuristic(find_rule("shaped"), RefineConfig(algorithm="hnpg"), []) is None


@given(
    max_weight=st.floats(0, 0.99),
    remaining=st.floats(0, 1),
    final_potential=st.floats(0, 1),
    off_at=st.floats(0.01, 1),
)
def test_weight_is_bounded(max_weight: float, remaining: float, final_potential: float, off_at: float) -> None:
    assert 0 <= heuristic_weight(max_weight, remaining, final_potential, off_at) <= max_weight * remaining
    assert (
        heuristic_weight(max_weight, 0.0, final_potential, off_at)
        == heuristic_weight(max_weight, remaining, 1.0, off_at)
        == 0.0
    )


@pytest.mark.parametrize("rule", ["sparse", "raw", "difference", "hold"])
def test_rules_without_shaping_have_no_heuristic(rule: str) -> None:
    assert make_heuristic(find_rule(rule), RefineConfig(heuristic_coef=0.5), []) is None


def test_weight_ignores_rollouts_without_full_episodes() -> None:
    config, shaped = RefineConfig(heuristic_coef=0.5, iterations=10), find_rule("shaped")
    early, full = (
        final_row(1.0) | {"has_full_episodes": False},
        final_row(1.0),
    )
    stays = make_heuristic(shaped, config, [early, early])
    assert stays is not None and stays.weight == pytest.approx(0.5 * 0.8)
    assert make_heuristic(shaped, config, [early, full]) is None


@pytest.mark.parametrize(("limit", "steps", "rollouts"), [(180, 20, 8), (180, 180, 0), (180, 200, 0), (181, 180, 1)])
def test_rollouts_until_full_episodes(limit, steps, rollouts) -> None:
    assert rollouts_until_full_episodes(limit, steps) == rollouts
