"""Pairs of frames: the progress between them, and which of them is closer to the goal.

Sources: VLAC teaches the change between neighboring frames, with regression (the same pair backwards) and stagnation as
negatives, and rejects mismatched instructions. Large Reward Models ranks any two frames, with ties.
"""

from collections.abc import Sequence

import numpy as np

from embodied_rm.labels.targets import Targets, targets_with_known_success
from embodied_rm.labels.true_progress import label_true_progress, require_true_progress
from embodied_rm.types import Array, BoolArray, Episode, IntArray

TIE_MARGIN = 0.01  # progress difference up to which two frames are tied


def label(episodes: Sequence[Episode]) -> list[Targets]:
    """Return the targets per episode; `DataError` if the true progress of every one is unknown."""
    require_true_progress(episodes, "pairwise")
    return label_true_progress(episodes, targets_with_known_success)


def preference_matrix(progress: Array) -> Array:
    """Return whether frame q is closer to the goal than frame p, float32 [..., M, M]: 1 closer, 0 farther, 1/2 tied."""
    gain = progress[..., None, :] - progress[..., :, None]
    return np.where(np.abs(gain) <= TIE_MARGIN, 0.5, gain > 0).astype(np.float32)


def adjacent_mask(frame_indices: IntArray) -> BoolArray:
    """Return whether no other of the frames int64 [B, M] lies between p and q, in both directions; bool [B, M, M]."""
    rank = np.argsort(np.argsort(frame_indices, axis=1, kind="stable"), axis=1)
    return np.abs(rank[:, :, None] - rank[:, None]) == 1
