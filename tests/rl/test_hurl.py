"""A potential that guides: the MDP that this is, what it is for, and why finishing stays the best."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rewards.rules import find_rule
from embodied_rm.rewards.shaping import shaped_reward
from embodied_rm.rl.learner.buffer import PPOBatch, RolloutBuffer
from embodied_rm.rl.learner.gae import gae
from embodied_rm.rl.learner.hurl import Heuristic, heuristic_weight
from embodied_rm.rl.learner.policy import ValueCritic
from embodied_rm.rl.refine import make_heuristic, rollouts_until_full_episodes
from embodied_rm.rl.refine_config import RefineConfig

GAMMA, LAM = 0.9, 0.8
unit = st.floats(0, 1)


@given(seed=st.integers(0, 1000), weight=st.floats(0, 0.99), pays=st.floats(0.1, 3))
def test_it_is_the_mdp_of_hurl(seed: int, weight: float, pays: float) -> None:
    """Reward r + w gamma h(s') and discount (1 - w) gamma (Cheng et al., eq. 4), at every kind of end."""
    rng = np.random.default_rng(seed)
    reward, value, next_value, potential = rng.normal(size=(4, 10, 2))
    terminated, limit, valid = rng.uniform(size=(3, 10, 2)) < np.array([0.2, 0.2, 0.8])[:, None, None]
    ends = (terminated, terminated | limit, valid)
    guidance = Heuristic(weight=weight, success_reward=pays)
    ours = gae(reward, value, guidance.mix_next_value(next_value, potential), *ends, GAMMA, guidance.mix_lambda(LAM))
    promised = reward + np.where(terminated, 0, weight * GAMMA * pays * potential)
    theirs = gae(promised, value, next_value, *ends, (1 - weight) * GAMMA, LAM)
    assert np.allclose(ours, theirs)


@given(phi=unit, weight=st.floats(0, 0.99), gamma=st.floats(0, 0.999), pays=st.floats(0.1, 3))
def test_success_at_once_is_worth_more_than_progress_held_for_ever(
    phi: float, weight: float, gamma: float, pays: float
) -> None:
    guidance = Heuristic(weight=weight, success_reward=pays)
    held = np.array(0.0)
    for _ in range(3000):
        held = gamma * guidance.mix_next_value(held, np.array(phi))
    assert held < pays


class KnowsFailure(ValueCritic):
    """What a policy that never succeeds is worth."""

    def __init__(self) -> None:
        super().__init__(1, (4,))

    def forward(self, observation: torch.Tensor, potential: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(potential)


def failing(weight: float) -> tuple[PPOBatch, np.ndarray]:
    """A shaped rollout of a failure, judged by who knows that it fails; and its potentials [T + 1]."""
    phi = np.random.default_rng(0).uniform(size=8).astype(np.float32)
    buffer = RolloutBuffer(7, 1, 1, 1, 1)
    no, one = np.zeros(1, bool), np.zeros((1, 1))
    for t in range(7):
        now, then = phi[t : t + 1], phi[t + 1 : t + 2]
        buffer.add(
            observation=one, critic_observation=one, next_critic_observation=one, potential=now, next_potential=then,
            action=one, log_prob=np.zeros(1), reward=shaped_reward(0.0, now, then, no, GAMMA),
            terminated=no, done=np.array([t == 6]), valid=~no,
        )  # fmt: skip
    guidance = Heuristic(weight=weight, success_reward=1.0) if weight else None
    return buffer.make_batch(KnowsFailure(), GAMMA, LAM, 1.0, guidance), phi


def test_who_knows_that_it_will_fail_sees_no_advantage_in_progress() -> None:
    """The reason for it."""
    assert failing(weight=0)[0].advantage_std == pytest.approx(0, abs=1e-6)


def test_who_is_guided_does() -> None:
    """And the critic is told of it."""
    batch, phi = failing(weight=0.5)
    ahead, carry = [], 0.0
    for t in reversed(range(7)):
        carry = GAMMA * 0.5 * phi[t + 1] + GAMMA * LAM * 0.5 * carry
        ahead.insert(0, carry)
    expected = np.array(ahead)
    assert np.allclose(batch.advantage, (expected - expected.mean()) / expected.std(), atol=1e-4)
    assert np.allclose(batch.target, expected, atol=1e-6)


def test_it_guides_those_who_fail_less_and_less() -> None:
    config = RefineConfig(iterations=10, heuristic_coef=0.2, reward=RewardConfig(success_reward=3.0))
    rows = [{"final_potential": None, "has_full_episodes": True}] * 10
    weights = [
        found.weight if (found := make_heuristic(find_rule("shaped"), config, rows[:i])) else 0.0 for i in range(11)
    ]
    assert weights == pytest.approx([0.2 * (1 - i / 10) for i in range(11)])
    assert make_heuristic(find_rule("shaped"), config, []) == Heuristic(weight=0.2, success_reward=3.0)


def test_it_leaves_where_its_work_is_done_and_returns_where_it_is_not() -> None:
    config = RefineConfig(iterations=10, heuristic_coef=0.2, heuristic_off_at=0.8)

    def found(height: float) -> float:
        rows = [{"final_potential": height, "has_full_episodes": True}] * 5  # half of the iterations
        guidance = make_heuristic(find_rule("shaped"), config, rows)
        return 0.0 if guidance is None else guidance.weight

    assert found(0.0) == pytest.approx(0.1)
    assert found(0.4) == pytest.approx(0.1 * 3 / 4)
    assert found(0.8) == found(1.0) == 0.0
    assert heuristic_weight(0.2, 0.5, [1.0, 1.0, 0.0, 0.0, 0.0], 0.8) == pytest.approx(0.1)


@given(most=st.floats(0, 0.99), left=st.floats(0, 1), heights=st.lists(st.floats(0, 1)), until=st.floats(0.01, 1))
def test_it_never_guides_more_than_was_asked_for(most: float, left: float, heights: list[float], until: float) -> None:
    assert 0 <= heuristic_weight(most, left, heights, until) <= most * left
    assert heuristic_weight(most, 0.0, heights, until) == heuristic_weight(most, left, [1.0] * 3, until) == 0.0


@pytest.mark.parametrize("rule", ["sparse", "raw", "difference", "hold"])
def test_rules_that_shape_by_no_potential_are_not_guided(rule: str) -> None:
    assert make_heuristic(find_rule(rule), RefineConfig(heuristic_coef=0.5), []) is None


def test_a_guide_stays_while_only_successes_can_have_ended() -> None:
    config, shaped = RefineConfig(heuristic_coef=0.5, iterations=10), find_rule("shaped")
    early, told = {"final_potential": 1.0, "has_full_episodes": False}, {"final_potential": 1.0, "has_full_episodes": True}
    stays = make_heuristic(shaped, config, [early, early])
    assert stays is not None and stays.weight == pytest.approx(0.5 * 0.8)
    assert make_heuristic(shaped, config, [early, told]) is None


@pytest.mark.parametrize(("limit", "steps", "rollouts"), [(180, 20, 8), (180, 180, 0), (180, 200, 0), (181, 180, 1)])
def test_a_rollout_tells_of_the_policy_once_its_longest_episodes_can_end_in_it(limit, steps, rollouts) -> None:
    assert rollouts_until_full_episodes(limit, steps) == rollouts
