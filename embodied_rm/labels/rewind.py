"""Demonstrations played forward and then, from some frame on, backwards: how failures look is made up.

Source: ReWiND (`dataset.py`): frame i of L is labelled (i + 1) / L, measured from the true start, wherever a clip
begins and whichever way it runs; under an instruction that wants something else every frame is labelled 0. What is
taught here are hops between frames so labelled (from the first to frame i: i / (L - 1)), and of another instruction the
one that matters, from the first frame to the last.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embodied_rm.labels.targets import Targets, demonstrates, need_demonstration, need_outcome, outcome_only
from embodied_rm.types import Array, BoolArray, Episode, IntArray


def label(episodes: Sequence[Episode]) -> list[Targets]:
    """The targets of every episode; of a failure only the outcome.

    Raises `DataError` without outcomes or without a demonstration.
    """
    need_outcome(episodes, "rewind")
    need_demonstration(episodes, "rewind")
    return [outcome_only(e, elapsed(len(e)), np.full(len(e), demonstrates(e))) for e in episodes]


def elapsed(length: int) -> Array:
    """float32 [length]: (i + 1) / length."""
    return ((np.arange(length) + 1) / length).astype(np.float32)


def rewound(length: int, rng: np.random.Generator) -> IntArray:
    """int64 [n]: places in a video of `length` >= 2 frames that a rewound clip shows one after the other: forward from
    some frame to a later one, then back by up to as much."""
    start, turn = np.sort(rng.choice(length, size=2, replace=False))
    back = int(rng.integers(1, turn - start + 1))
    return np.concatenate([np.arange(start, turn + 1), np.arange(turn - 1, turn - back - 1, -1)])


def shown_in_turn(at: IntArray, rng: np.random.Generator) -> BoolArray:
    """bool [B, M, M]: whether a rewound clip of the moments at frames `at` [B, M] shows moment q right after p."""
    pairs = np.zeros((*at.shape, at.shape[1]), bool)
    for row, order in zip(pairs, np.argsort(at, axis=1, kind="stable"), strict=True):
        path = order[rewound(len(order), rng)]
        row[path[:-1], path[1:]] = True
    return pairs
