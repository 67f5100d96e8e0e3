"""Preferences between two segments, by partial return or by regret.

Sources: RL-VLM-F (preferences of a VLM, Bradley-Terry); Knox et al., Models of human preference (arXiv 2206.02231). The
partial return is the sum of progress over the frames. With a reward at the end only, the regret is V at the start minus
V at the end. The preferences are those of the true progress or of any other curve.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from embodied_rm.labels.targets import Targets, targets_with_final_outcome, targets_with_known_success
from embodied_rm.labels.true_progress import label_true_progress, require_true_progress
from embodied_rm.types import Array, Episode, IntArray

if TYPE_CHECKING:
    from torch import Tensor

PotentialT = TypeVar("PotentialT", Array, "Tensor")  # array of the labels, or tensor of the net that learns them
ScalarT = TypeVar("ScalarT", bound=np.generic)
BRADLEY_TERRY_RATIONALITY = 4.0  # log-odds of the better segment for a difference of 1


def label(episodes: Sequence[Episode], progress_fn: Callable[[Episode], Array] | None = None) -> list[Targets]:
    """Return the targets per episode, from its progress float32 [T] in [0, 1]; None: the true progress.

    Another progress does not determine success; the recorded outcome does. `DataError` if the true progress is needed
    and unknown in every episode.
    """
    if progress_fn is None:
        require_true_progress(episodes, "preferences")
        return label_true_progress(episodes, targets_with_known_success)
    return [targets_with_final_outcome(episode, progress_fn(episode)) for episode in episodes]


def partial_return(segment: PotentialT) -> PotentialT:
    """Sum progress over segments [..., L]."""
    return segment.sum(-1)


def regret(segment: PotentialT) -> PotentialT:
    """Return the progress that segments [..., L] lose, in [-1, 1]; negative for a gain."""
    return segment[..., 0] - segment[..., -1]


def bradley_terry(first_value: npt.ArrayLike, second_value: npt.ArrayLike) -> Array:
    """Return the probability that the first segment is preferred, float32 in (0, 1), from the values of both."""
    difference = np.asarray(first_value) - np.asarray(second_value)
    return (1 / (1 + np.exp(-BRADLEY_TERRY_RATIONALITY * difference))).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class SegmentPairs:
    """B pairs of segments of L frames."""

    episode_index: IntArray  # row of the episode in the batch, int64 [B, 2, 1]; both episodes have the same goal
    timestep_index: IntArray  # column of the frames in the batch, int64 [B, 2, L], in order of time

    def gather(self, values: npt.NDArray[ScalarT]) -> npt.NDArray[ScalarT]:
        """Return values [B, M] along the segments, [B, 2, L]."""
        return values[self.episode_index, self.timestep_index]


def sample_segment_pairs(frame_indices: IntArray, goals: Sequence[str], rng: np.random.Generator) -> SegmentPairs:
    """Draw per episode a segment of half its frames int64 [B, M], and one of another episode with the same goal.

    An episode without such a partner is paired with itself.
    """
    batch_size, num_timesteps = frame_indices.shape
    length = max(num_timesteps // 2, 2)
    goal_names, rows = np.array(goals), np.arange(batch_size)
    candidates = [np.flatnonzero((goal_names == goal_names[b]) & (rows != b)) for b in rows]
    partners = [int(rng.choice(others)) if len(others) else b for b, others in enumerate(candidates)]
    episode_index = np.stack([np.arange(batch_size), partners], axis=1)[..., None]
    starts = rng.integers(0, num_timesteps - length + 1, size=(batch_size, 2, 1))
    time_order = np.argsort(frame_indices, axis=1, kind="stable")
    timestep_index = time_order[episode_index, starts + np.arange(length)]
    return SegmentPairs(episode_index=episode_index, timestep_index=timestep_index)
