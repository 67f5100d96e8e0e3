"""Demonstrations played forward and then, from some frame on, backwards: how failures look is made up.

Source: ReWiND (`dataset.py`): frame i of L is labeled (i + 1) / L, measured from the true start, wherever a clip
begins and whichever way it runs; under an instruction that wants something else every frame is labeled 0. What is
taught here are hops between frames so labeled (from the first to frame i: i / (L - 1)), and of another instruction the
one that matters, from the first frame to the last.
"""

from __future__ import annotations

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
    """The targets of every episode; of a failure only the outcome.

    Raises `DataError` without outcomes or without a demonstration.
    """
    require_outcome(episodes, "rewind")
    require_demonstration(episodes, "rewind")
    return [
        targets_with_final_outcome(e, elapsed_fraction(len(e)), np.full(len(e), is_demonstration(e))) for e in episodes
    ]


def elapsed_fraction(length: int) -> Array:
    """float32 [length]: (i + 1) / length."""
    return ((np.arange(length) + 1) / length).astype(np.float32)


def sample_rewind(length: int, rng: np.random.Generator) -> IntArray:
    """int64 [n]: places in a video of `length` >= 2 frames that a rewound clip shows one after the other: forward from
    some frame to a later one, then back by up to as much."""
    first, turning_point = np.sort(rng.choice(length, size=2, replace=False))
    num_back = int(rng.integers(1, turning_point - first + 1))
    return np.concatenate(
        [np.arange(first, turning_point + 1), np.arange(turning_point - 1, turning_point - num_back - 1, -1)]
    )


def rewind_adjacent_mask(frame_indices: IntArray, rng: np.random.Generator) -> BoolArray:
    """bool [B, M, M]: whether a rewound clip of the moments at frames `at` [B, M] shows moment q right after p."""
    mask = np.zeros((*frame_indices.shape, frame_indices.shape[1]), bool)
    for row_mask, order in zip(mask, np.argsort(frame_indices, axis=1, kind="stable"), strict=True):
        clip = order[sample_rewind(len(order), rng)]
        row_mask[clip[:-1], clip[1:]] = True
    return mask
