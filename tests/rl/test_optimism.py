"""A critic that believes the potential: what it leaves alone, what it raises, and what it is for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.rl.buffer import Batch, RolloutBuffer
from embodied_rm.rl.gae import gae
from embodied_rm.rl.optimism import Optimism
from embodied_rm.rl.policy import Critic
from embodied_rm.rl.refine import RefineConfig, believed
from embodied_rm.rl.reward_config import RewardConfig
from embodied_rm.shaping import shaped_reward

GAMMA, LAM = 0.9, 0.8
unit = st.floats(0, 1)


def raised(task: float, phi: float, weight: float, scale: float = 1.0, pays: float = 1.0) -> float:
    """The value of the task that optimism makes of a value of the task."""
    itself = Optimism(weight=weight, scale=scale, success_reward=pays)
    return float(itself.value(np.array(task - scale * phi), np.array(phi))) + scale * phi


@given(task=unit, phi=unit, weight=unit, scale=st.floats(0, 5), pays=st.floats(1, 3))
def test_it_lies_between_what_is_known_and_success(task: float, phi: float, weight: float, scale: float, pays: float):
    assert task - 1e-9 <= raised(task, phi, weight, scale, pays) <= pays + 1e-9


@given(phi=unit, weight=unit, scale=st.floats(0, 5), more=st.floats(0, 2))
def test_where_the_policy_succeeds_nothing_is_raised(phi: float, weight: float, scale: float, more: float) -> None:
    assert raised(1 + more, phi, weight, scale) == pytest.approx(1 + more)


def test_without_weight_or_potential_nothing_is_raised() -> None:
    assert raised(0.3, 0.5, weight=0) == raised(0.3, 0, weight=1) == pytest.approx(0.3)


class KnowsFailure(Critic):
    """What a policy that never succeeds is worth, of shaped returns: the potential, less."""

    def __init__(self) -> None:
        super().__init__(1, (4,))

    def forward(self, observation: torch.Tensor, potential: torch.Tensor) -> torch.Tensor:
        return -potential


def failing(weight: float, rng_seed: int = 0) -> tuple[Batch, np.ndarray]:
    """A rollout of failures under shaping, judged by who knows that it will fail; and its potentials [T + 1]."""
    phi = np.random.default_rng(rng_seed).uniform(size=8).astype(np.float32)
    buffer = RolloutBuffer(7, 1, 1, 1, 1)
    no, one = np.zeros(1, bool), np.zeros((1, 1))
    for t in range(7):
        now, then = phi[t : t + 1], phi[t + 1 : t + 2]
        buffer.add(
            observation=one, critic_observation=one, next_critic_observation=one, potential=now, next_potential=then,
            action=one, log_prob=np.zeros(1), reward=shaped_reward(0.0, now, then, no, GAMMA),
            terminated=no, done=np.array([t == 6]), valid=~no,
        )  # fmt: skip
    optimism = Optimism(weight=weight, scale=1.0, success_reward=1.0) if weight else None
    return buffer.batch(KnowsFailure(), GAMMA, LAM, optimism), phi


def test_who_knows_that_it_will_fail_sees_no_advantage_in_progress() -> None:
    """The reason for it: a critic of shaped returns has unlearned the potential."""
    phi = failing(weight=0)[1][:, None].astype(float)
    no = np.zeros((7, 1), bool)
    paid = shaped_reward(0.0, phi[:-1], phi[1:], no, GAMMA)
    assert np.allclose(gae(paid, -phi[:-1], -phi[1:], no, no, ~no, GAMMA, LAM), 0)


def test_who_believes_the_potential_does() -> None:
    """The advantage is then the discounted progress ahead, whatever the critic knows."""
    batch, phi = failing(weight=1)
    carry, ahead = 0.0, []
    for t in reversed(range(7)):
        carry = GAMMA * phi[t + 1] - phi[t] + GAMMA * LAM * carry
        ahead.append(carry)
    expected = np.array(ahead[::-1])
    assert np.allclose(batch.advantage, (expected - expected.mean()) / expected.std(), atol=1e-4)


def test_the_critic_is_told_the_truth_all_the_same() -> None:
    assert torch.equal(failing(weight=1)[0].target, failing(weight=0)[0].target)


def test_it_is_believed_less_and_less_and_in_the_end_not_at_all() -> None:
    config = RefineConfig(iterations=10, optimism=0.8, reward=RewardConfig(scale=2.0, success_reward=3.0))
    weights = [believed("shaped", config, iteration).weight for iteration in range(10)]
    assert weights == pytest.approx([0.8 * (1 - i / 10) for i in range(10)])
    assert believed("shaped", config, 3) == Optimism(weight=0.8 * 0.7, scale=2.0, success_reward=3.0)


@pytest.mark.parametrize("rule", ["sparse", "raw", "difference", "hold"])
def test_rules_that_shape_by_no_potential_have_none_to_believe(rule: str) -> None:
    assert believed(rule, RefineConfig(optimism=1.0), 0) is None
