"""What a time limit leaves of a state's worth: between the critic's word and success; and what it is for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.rl.buffer import Batch, RolloutBuffer
from embodied_rm.rl.policy import Critic
from embodied_rm.rl.refine import RefineConfig, timeout_credit
from embodied_rm.rl.reward_config import RewardConfig
from embodied_rm.rl.timeouts import TimeoutCredit
from embodied_rm.shaping import shaped_reward

GAMMA, LAM = 0.9, 0.8
unit = st.floats(0, 1)


@given(task=unit, phi=unit, share=unit, pays=st.floats(1, 3))
def test_it_is_the_more_of_what_the_critic_and_the_potential_say(
    task: float, phi: float, share: float, pays: float
) -> None:
    credit = TimeoutCredit(share=share, success_reward=pays)
    assert float(credit.value(np.array(task), np.array(phi))) == pytest.approx(max(task, share * phi * pays))


class KnowsFailure(Critic):
    """What a policy that never succeeds is worth."""

    def __init__(self) -> None:
        super().__init__(1, (4,))

    def forward(self, observation: torch.Tensor, potential: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(potential)


def cut_off(share: float) -> tuple[Batch, np.ndarray]:
    """A shaped rollout that the time limit ends, judged by who knows that it fails; and its potentials [T + 1]."""
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
    credit = TimeoutCredit(share=share, success_reward=1.0) if share else None
    return buffer.batch(KnowsFailure(), GAMMA, LAM, 1.0, credit), phi


def test_who_knows_that_it_will_fail_sees_no_advantage_in_progress() -> None:
    """The reason for it."""
    batch, _ = cut_off(share=0)
    assert batch.advantage_spread == pytest.approx(0, abs=1e-6)


def test_with_credit_there_is_one_in_what_was_reached_by_the_limit() -> None:
    """And the critic is told of it: what leads there earns it too, however long before."""
    batch, phi = cut_off(share=0.5)
    ahead = 0.5 * phi[-1] * GAMMA * (GAMMA * LAM) ** np.arange(6, -1, -1)
    assert np.allclose(batch.advantage, (ahead - ahead.mean()) / ahead.std(), atol=1e-4)
    assert np.allclose(batch.target, ahead, atol=1e-6)


def test_a_success_is_paid_as_ever() -> None:
    """Only the time limit is credited: an end of the task has nothing after it."""
    buffer = RolloutBuffer(1, 1, 1, 1, 1)
    yes, one, half = np.ones(1, bool), np.zeros((1, 1)), np.full(1, 0.5)
    buffer.add(
        observation=one, critic_observation=one, next_critic_observation=one, potential=half, next_potential=half,
        action=one, log_prob=np.zeros(1), reward=np.full(1, 0.5), terminated=yes, done=yes, valid=yes,
    )  # fmt: skip
    credit = TimeoutCredit(share=0.9, success_reward=1.0)
    assert buffer.batch(KnowsFailure(), GAMMA, LAM, 0.0, credit).target == 0.5


def test_the_share_falls_to_nothing_over_a_refinement() -> None:
    config = RefineConfig(iterations=10, timeout_credit=0.8, reward=RewardConfig(success_reward=3.0))
    shares = [timeout_credit("shaped", config, iteration).share for iteration in range(10)]
    assert shares == pytest.approx([0.8 * (1 - i / 10) for i in range(10)])
    assert timeout_credit("shaped", config, 3) == TimeoutCredit(share=0.8 * 0.7, success_reward=3.0)


@pytest.mark.parametrize("rule", ["sparse", "raw", "difference", "hold"])
def test_rules_that_shape_by_no_potential_get_no_credit(rule: str) -> None:
    assert timeout_credit(rule, RefineConfig(timeout_credit=0.9), 0) is None
