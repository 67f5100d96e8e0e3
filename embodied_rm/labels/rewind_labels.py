"""Rewound demonstrations: clips that run forward and then backwards imitate failures.

Source: ReWiND (`dataset.py`). Frame i of L is labeled (i + 1) / L, for any clip start and direction. Under a negative
instruction every frame is labeled 0. The objective uses the hops between these labels (from the first frame to frame i:
i / (L - 1)). For a negative instruction it uses the hop from the first to the last frame.
"""

from collections.abc import Sequence

import numpy as np

from embodied_rm.labels.targets import (
    Targets,
    is_demonstration,
    require_demonstration,
    require_outcome,
    targets_with_final_outcome,
)
from embodied_rm.types import Array, BoolArray, Episode, IntArray


def label(episodes: Sequence[Episode]) -> list[Targets]:
    """Return the targets per episode. Failures get their outcome only.

    `DataError` if no episode has an outcome or none is a demonstration.
    """
    require_outcome(episodes, "rewind")
    require_demonstration(episodes, "rewind")
    return [
        targets_with_final_outcome(e, elapsed_fraction(len(e)), np.full(len(e), is_demonstration(e))) for e in episodes
    ]


def elapsed_fraction(length: int) -> Array:
    """Return (i + 1) / length per frame i, float32 [length]."""
    return ((np.arange(length) + 1) / length).astype(np.float32)


def sample_rewind(length: int, rng: np.random.Generator) -> IntArray:
    """Draw a rewound clip of a video of `length` >= 2 frames, int64 [n]: forward, then back by at most as much."""
    first, turning_point = np.sort(rng.choice(length, size=2, replace=False))
    num_back = int(rng.integers(1, turning_point - first + 1))
    back = np.arange(turning_point - 1, turning_point - num_back - 1, -1)
    return np.concatenate([np.arange(first, turning_point + 1), back])


def rewind_adjacent_mask(frame_indices: IntArray, rng: np.random.Generator) -> BoolArray:
    """Return whether frame q follows p in a random rewound clip of the frames int64 [B, M]; bool [B, M, M]."""
    mask = np.zeros((*frame_indices.shape, frame_indices.shape[1]), bool)
    for row_mask, order in zip(mask, np.argsort(frame_indices, axis=1, kind="stable"), strict=True):
        clip = order[sample_rewind(len(order), rng)]
        row_mask[clip[:-1], clip[1:]] = True
    return mask
