"""Inputs of reward rules, and sums over the episodes of a rollout."""

from dataclasses import dataclass

import numpy as np

from embodied_rm.client.episode_reward import FloatArray, Transitions
from embodied_rm.types import BoolArray, IntArray

__all__ = [
    "FloatArray",
    "RewardParams",
    "Transitions",
    "is_finished",
    "last_per_episode",
    "number_episodes",
    "sum_per_episode",
]


@dataclass(frozen=True, kw_only=True)
class RewardParams:
    """Inputs of a reward rule that are the same for all transitions of a run."""

    gamma: float  # discount of the learner
    scale: float = 1.0  # weight of the progress: the reward for the whole task, from potential 0 to 1
    max_episode_steps: int | None = None  # time limit of an episode, in steps
    reference_rewards: tuple[float, ...] = ()  # final progress of episodes of the imitated policy
    auxiliary_weight: float = 1.0  # learned weight of the auxiliary reward


def number_episodes(done: BoolArray) -> IntArray:
    """Return for each step [T, N] the number of its episode, int64, unique over all rows."""
    episodes_before: IntArray = np.cumsum(done, axis=0) - done
    return episodes_before * done.shape[1] + np.arange(done.shape[1])


def is_finished(done: BoolArray) -> BoolArray:
    """Return for each step [T, N] whether its episode ended within these steps."""
    finished: BoolArray = np.flip(np.logical_or.accumulate(np.flip(done, 0), axis=0), 0)
    return finished


def last_per_episode(values: FloatArray, episode_ids: IntArray) -> FloatArray:
    """Return for each step [T, N] the value at the last step of its episode in this rollout."""
    last = np.zeros(episode_ids.max() + 1)
    for step_values, step_ids in zip(values, episode_ids, strict=True):
        last[step_ids] = step_values
    return last[episode_ids]


def sum_per_episode(values: FloatArray, episode_ids: IntArray) -> FloatArray:
    """Return for each step [T, N] the sum over the steps of its episode in this rollout."""
    return np.bincount(episode_ids.ravel(), values.ravel())[episode_ids].astype(values.dtype)


def mean_per_episode(values: FloatArray, episode_ids: IntArray) -> FloatArray:
    """Return for each step [T, N] the mean vector [T, N, D] over the steps of its episode in this rollout."""
    ids = episode_ids.ravel()
    sums = np.zeros((ids.max() + 1, values.shape[-1]))
    np.add.at(sums, ids, values.reshape(len(ids), -1))
    means: FloatArray = (sums / np.maximum(np.bincount(ids), 1)[:, None])[episode_ids]
    return means
