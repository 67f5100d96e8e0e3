"""What a rollout becomes for the learner: shaping is known to the critic, so that it cannot be in its way."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.rewards.shaping import shaped_reward
from embodied_rm.rl.learner.buffer import PPOBatch, RolloutBuffer
from embodied_rm.rl.learner.policy import ValueCritic

T, N, GAMMA, LAM = 12, 3, 0.95, 0.8


class TaskAlone(ValueCritic):
    """A critic of no merit, whose word does not depend on the potential."""

    def forward(self, observation: torch.Tensor, potential: torch.Tensor) -> torch.Tensor:
        return super().forward(observation, torch.zeros_like(potential))


def rollout(seed: int, scale: float) -> PPOBatch:
    """Steps of which some end episodes, by success, failure or the time limit, and some are faults; the same ones at
    every scale of their shaping."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    critic = TaskAlone(2, (8,))
    buffer = RolloutBuffer(T, N, 2, 1, 2)
    for _ in range(T):
        seen, following = rng.normal(size=(2, N, 2))
        now, then = rng.uniform(size=(2, N)).astype(np.float32)
        terminated, limit, valid = rng.uniform(size=(3, N)) < np.array([[0.2], [0.2], [0.8]])
        buffer.add(
            observation=seen, critic_observation=seen, next_critic_observation=following, potential=now,
            next_potential=then, action=np.zeros((N, 1)), log_prob=np.zeros(N),
            reward=shaped_reward(rng.normal(size=N), now, then, terminated, GAMMA, scale=scale),
            terminated=terminated, done=terminated | limit, valid=valid,
        )  # fmt: skip
    return buffer.make_batch(critic, GAMMA, LAM, scale)


@given(seed=st.integers(0, 1000), scale=st.floats(0.1, 10))
def test_shaping_changes_neither_advantages_nor_what_the_critic_learns(seed: int, scale: float) -> None:
    """Invariance to the last term of every estimate, at every kind of end: not in expectation, and not of the optimum
    alone. (The potentials of neighbouring steps are not one episode's here; one step is enough.)"""
    shaped, plain = rollout(seed, scale), rollout(seed, 0)
    assert torch.allclose(shaped.advantage, plain.advantage, atol=1e-3)
    assert torch.allclose(shaped.target, plain.target, atol=1e-4)
