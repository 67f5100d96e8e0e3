"""Chunks of actions that a policy takes in a world model, their rewards, and pairs of the best and the worst.

Source: NORA-1.5 (arXiv 2511.14659): the reward of a chunk is where the world model sees it lead, and how near it is to
the demonstrated actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from embodied_rm.rl.imagination.latent_episodes import Windows
from embodied_rm.rl.imagination.world_model import WorldModel
from embodied_rm.rl.learner.policy import GaussianPolicy
from embodied_rm.threads import torch_threads

MIN_REWARD_STD = 1e-6


@dataclass(frozen=True, kw_only=True)
class Chunks:
    """N chunks of H actions from each of S states."""

    observation: Tensor  # float32 [S, N, H, D], in which the actions are taken
    action: Tensor  # float32 [S, N, H, A]
    progress: Tensor  # float32 [E, S, N], after the chunk, by each member of the world model


@dataclass(frozen=True, kw_only=True)
class ChunkPairs:
    """P pairs of chunks from the same state; the first of each pair is the preferred one."""

    observation: Tensor  # float32 [P, 2, H, D]
    action: Tensor  # float32 [P, 2, H, A]

    def __len__(self) -> int:
        return len(self.action)

    @classmethod
    def concat(cls, parts: Sequence[ChunkPairs]) -> ChunkPairs:
        """Return the pairs of all parts, in order."""
        return cls(
            observation=torch.cat([part.observation for part in parts]), action=torch.cat([p.action for p in parts])
        )


@torch_threads(1)
@torch.no_grad()
def imagine_chunks(
    model: WorldModel, policy: GaussianPolicy, observation: Tensor, embedding: Tensor, noise: Tensor
) -> Chunks:
    """Return the chunks of a policy in a world model; it observes the mean of the members' predictions.

    Args:
        model: The world model.
        policy: The policy.
        observation: First observations, float32 [S, D].
        embedding: Their states in the reward model, float32 [S, W].
        noise: Noise of the actions, in standard deviations, float32 [S, N, H, A].
    """
    num_states, num_chunks = noise.shape[:2]
    rows = torch.arange(num_states).repeat_interleave(num_chunks)
    state, std = model.start(observation[rows], embedding[rows]), policy.clamped_log_std.exp()
    observations, actions = [], []
    for step_noise in noise.flatten(0, 1).unbind(1):
        observations.append(state.observation.mean(0))
        actions.append(policy(observations[-1])[0] + std * step_noise)
        state = model.step(state, actions[-1])
    shape = (num_states, num_chunks)
    return Chunks(
        observation=torch.stack(observations, 1).unflatten(0, shape),
        action=torch.stack(actions, 1).unflatten(0, shape),
        progress=model.progress(state).unflatten(1, shape),
    )


def progress_reward(progress: Tensor, pessimism: float) -> Tensor:
    """Return mean - pessimism * standard deviation over the members, [S, N] from [E, S, N]."""
    return progress.mean(0) - pessimism * progress.std(0, correction=0)


def deviation_reward(action: Tensor, demonstrated: Tensor) -> Tensor:
    """Return minus the mean squared distance of chunks [S, N, H, A] to demonstrated ones [S, H, A]; [S, N]."""
    return -(action - demonstrated[:, None]).square().mean((2, 3))


def standardize(reward: Tensor) -> Tensor:
    """Return rewards [S, N] with mean 0 and standard deviation 1 over the chunks of each state."""
    centered = reward - reward.mean(1, keepdim=True)
    return centered / reward.std(1, correction=0, keepdim=True).clamp_min(MIN_REWARD_STD)


def best_and_worst(observation: Tensor, action: Tensor, reward: Tensor) -> ChunkPairs:
    """Return the chunks with the largest and the smallest reward of each state, unless all of them are equal.

    Args:
        observation: float32 [S, N, H, D].
        action: float32 [S, N, H, A].
        reward: float32 [S, N].
    """
    states = torch.nonzero(reward.amax(1) > reward.amin(1)).squeeze(1)
    chosen = torch.stack([reward.argmax(1), reward.argmin(1)], 1)[states]
    return ChunkPairs(observation=observation[states[:, None], chosen], action=action[states[:, None], chosen])


def rate_chunks(
    chunks: Chunks, windows: Windows, *, progress_weight: float, deviation_weight: float, pessimism: float
) -> Tensor:
    """Return the reward [S, N] of chunks that start where the windows do: a weighted sum of standardized rewards."""
    reward = torch.zeros_like(chunks.progress[0])
    if progress_weight:
        reward = reward + progress_weight * standardize(progress_reward(chunks.progress, pessimism))
    if deviation_weight:
        reward = reward + deviation_weight * standardize(deviation_reward(chunks.action, windows.action))
    return reward
