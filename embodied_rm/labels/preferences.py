"""Which of two segments somebody would rather see: by what they show, or by what they lose.

Source: RL-VLM-F (preferences of a judge, Bradley-Terry); Knox et al., Models of human preference (arXiv 2206.02231): by
partial return (the sum of what each moment is worth) or by regret (what the segment gave away: V at its start - V at
its end, as the reward comes only at the end). The judge is the true progress, or any curve in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from embodied_rm.labels.hops import true_progress
from embodied_rm.labels.targets import Targets, targets_with_final_outcome, targets_with_known_success
from embodied_rm.types import Array, Episode, IntArray

if TYPE_CHECKING:
    from torch import Tensor

PotentialT = TypeVar("PotentialT", Array, "Tensor")
"""The judge's, or that of a net which learns from the judge."""
ScalarT = TypeVar("ScalarT", bound=np.generic)
BRADLEY_TERRY_RATIONALITY = 4.0
"""How surely the judge takes the better segment: log-odds for a difference of 1."""


def label(episodes: Sequence[Episode], progress_fn: Callable[[Episode], Array] = true_progress) -> list[Targets]:
    """The targets of every episode, whose worth from frame to frame, float32 [T] in [0, 1], the `judge` says: a reward
    model or a person in the place of the truth, who does not say when a task is done: then the outcome tells, where
    it is recorded. Raises `DataError` naming an episode whose true progress is unknown, where that is asked for."""
    if progress_fn is true_progress:
        return [targets_with_known_success(episode, progress_fn(episode)) for episode in episodes]
    return [targets_with_final_outcome(episode, progress_fn(episode)) for episode in episodes]


def partial_return(segment: PotentialT) -> PotentialT:
    """The sum over the moments of segments [..., L], each worth its progress."""
    return segment.sum(-1)


def regret(segment: PotentialT) -> PotentialT:
    """What segments [..., L] of progress gave away, in [-1, 1]; negative: they gained."""
    return segment[..., 0] - segment[..., -1]


def bradley_terry(first_value: npt.ArrayLike, second_value: npt.ArrayLike) -> Array:
    """float32 in (0, 1): how likely the judge takes `one`, by what each of the two is worth."""
    return (1 / (1 + np.exp(-BRADLEY_TERRY_RATIONALITY * (np.asarray(first_value) - np.asarray(second_value))))).astype(
        np.float32
    )


@dataclass(frozen=True, kw_only=True)
class SegmentPairs:
    """B pairs of segments of L moments."""

    episode_index: IntArray
    """int64 [B, 2, 1]: the episode that each is from, both with the same goal."""
    timestep_index: IntArray
    """int64 [B, 2, L]: its moments, in the order of time."""

    def gather(self, values: npt.NDArray[ScalarT]) -> npt.NDArray[ScalarT]:
        """[B, 2, L]: a curve [B, M] along the segments."""
        return values[self.episode_index, self.timestep_index]


def sample_segment_pairs(frame_indices: IntArray, goals: Sequence[str], rng: np.random.Generator) -> SegmentPairs:
    """For every episode of a batch a segment of half its moments (at frames `at` [B, M]), and one of an episode with
    the same goal, itself if the batch has no other."""
    batch_size, num_timesteps = frame_indices.shape
    length = max(num_timesteps // 2, 2)
    goal_names = np.array(goals)
    candidates = [
        np.flatnonzero((goal_names == goal_names[b]) & (np.arange(batch_size) != b)) for b in range(batch_size)
    ]
    partners = [int(rng.choice(rows)) if len(rows) else b for b, rows in enumerate(candidates)]
    episode_index = np.stack([np.arange(batch_size), partners], axis=1)[..., None]
    starts = rng.integers(0, num_timesteps - length + 1, size=(batch_size, 2, 1))
    time_order = np.argsort(frame_indices, axis=1, kind="stable")
    return SegmentPairs(
        episode_index=episode_index, timestep_index=time_order[episode_index, starts + np.arange(length)]
    )
