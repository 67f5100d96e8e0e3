"""The batch of a rollout does not depend on shaping, because the critic knows it."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.client.shaping import shaped_reward
from embodied_rm.rl.learner.buffer import PPOBatch, RolloutBuffer
from embodied_rm.rl.learner.policy import ValueCritic

T, N, GAMMA, LAM = 12, 3, 0.95, 0.8


class TaskAlone(ValueCritic):
    """A random critic whose values do not depend on the potential."""

    def forward(self, observation: torch.Tensor, potential: torch.Tensor) -> torch.Tensor:
        return super().forward(observation, torch.zeros_like(potential))


def rollout(seed: int, scale: float) -> PPOBatch:
    """Return a rollout with terminated, truncated and invalid steps, the same for each scale of shaping."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    critic = TaskAlone(2, (8,))
    buffer = RolloutBuffer(T, N, 2, 1, 2)
    for _ in range(T):
        observation, next_observation = rng.normal(size=(2, N, 2))
        phi, next_phi = rng.uniform(size=(2, N)).astype(np.float32)
        terminated, limit, valid = rng.uniform(size=(3, N)) < np.array([[0.2], [0.2], [0.8]])
        buffer.add(
            observation=observation,
            critic_observation=observation,
            next_critic_observation=next_observation,
            potential=phi,
            next_potential=next_phi,
            action=np.zeros((N, 1)),
            log_prob=np.zeros(N),
            reward=shaped_reward(rng.normal(size=N), phi, next_phi, terminated, GAMMA, scale=scale),
            terminated=terminated,
            done=terminated | limit,
            valid=valid,
        )
    return buffer.make_batch(critic, GAMMA, LAM, scale)


@given(seed=st.integers(0, 1000), scale=st.floats(0.1, 10))
def test_shaping_changes_neither_advantages_nor_targets(seed: int, scale: float) -> None:
    """Each single estimate is invariant, at all kinds of episode end. The potentials of consecutive steps are
    independent here, since the invariance holds per step."""
    shaped, plain = rollout(seed, scale), rollout(seed, 0)
    assert torch.allclose(shaped.advantage, plain.advantage, atol=1e-3)
    assert torch.allclose(shaped.target, plain.target, atol=1e-4)
