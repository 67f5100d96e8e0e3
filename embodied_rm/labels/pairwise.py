"""Two frames at a time: how much the second gains on the first, and which of them is closer to the goal.

Source: VLAC: the change between neighbouring frames, with regression (the same pair backwards) and stagnation (no
change) as negatives, and instructions that do not belong to the video rejected. Large Reward Models: which of any two
frames is closer, or neither.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embodied_rm.labels.hops import true_progress
from embodied_rm.labels.targets import Targets, targets_with_known_success
from embodied_rm.types import Array, BoolArray, Episode, IntArray

TIE_MARGIN = 0.01
"""Progress up to which two frames are taken for equally far."""


def label(episodes: Sequence[Episode]) -> list[Targets]:
    """The targets of every episode. Raises `DataError` naming an episode whose true progress is unknown."""
    return [targets_with_known_success(episode, true_progress(episode)) for episode in episodes]


def preference_matrix(progress: Array) -> Array:
    """float32 [..., M, M]: 1 where moment q is closer to the goal than p, 0 where it is farther, 1/2 where they are
    alike."""
    gain = progress[..., None, :] - progress[..., :, None]
    return np.where(np.abs(gain) <= TIE_MARGIN, 0.5, gain > 0).astype(np.float32)


def adjacent_mask(frame_indices: IntArray) -> BoolArray:
    """bool [B, M, M]: whether no other moment lies between moments p and q, at frames `at` [B, M]; both ways."""
    rank = np.argsort(np.argsort(frame_indices, axis=1, kind="stable"), axis=1)
    return np.abs(rank[:, :, None] - rank[:, None]) == 1
