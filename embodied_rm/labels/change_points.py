"""Where a sequence of features changes: the segments with the least variance inside, by dynamic programming (exact)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from embodied_rm.types import Array, BoolArray

MOST = 8
"""Most segments that are looked for."""
EXPLAINED = 0.8
"""Share of the features' variance that the segments must explain."""


def step_count(features: Sequence[Array]) -> int:
    """The fewest steps, up to `MOST`, that explain `EXPLAINED` of the variance, mean over demonstrations [T, D]."""
    explained = np.mean([_explained(one) for one in features], axis=0)
    return int(np.argmax(explained >= EXPLAINED)) + 1 if explained.max() >= EXPLAINED else MOST


def _explained(features: Array) -> npt.NDArray[np.float64]:
    """float64 [MOST]: share of the variance that the best 1, 2, ... segments explain; 1 where nothing varies."""
    least, _ = _least(_costs(features), MOST)
    ends = least[:, -1]
    ends = np.where(np.isfinite(ends), ends, 0.0)  # fewer frames than segments: each frame its own
    return 1 - ends / ends[0] if ends[0] > 1e-9 else np.ones(MOST)


def segment(features: Array, count: int, forced: BoolArray) -> list[int]:
    """Edges [0, ..., T] of the `count` segments (at most T) with the least sum of squared distances to their means.

    A segment begins wherever `forced` [T] is true; there must be fewer such frames behind the first than `count`.
    """
    cost, length = _costs(features), len(features)
    inside = np.append(0, np.cumsum(forced))
    crossing = inside[None, 1:] - inside[1:, None] > 0  # [i, j - 1]: a forced edge lies between i and j
    cost[:-1, 1:][crossing] = np.inf
    least, before = _least(cost, min(count, length))
    edges = [length]
    for row in before[: len(least)][::-1]:
        edges.append(int(row[edges[-1]]))
    return edges[::-1]


def _costs(features: Array) -> npt.NDArray[np.float64]:
    """float64 [T + 1, T + 1]: squared distances of frames i..j-1 to their mean, summed; infinite where j <= i."""
    centred = features.astype(np.float64) - features.mean(axis=0)
    sums = np.concatenate([np.zeros((1, centred.shape[1])), np.cumsum(centred, axis=0)])
    squares = np.append(0, np.cumsum((centred**2).sum(axis=1)))
    dots = sums @ sums.T
    norm = np.diag(dots)
    frames = np.arange(len(sums))[None] - np.arange(len(sums))[:, None]
    spread = squares[None] - squares[:, None] - (norm[None] + norm[:, None] - 2 * dots) / np.maximum(frames, 1)
    return np.where(frames > 0, np.maximum(spread, 0), np.inf)


def _least(cost: npt.NDArray[np.float64], most: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """(least cost of the first j frames in k + 1 segments, where the last of these begins), both [most, T + 1]."""
    least, before = [cost[0]], [np.zeros(len(cost), np.int64)]
    for _ in range(most - 1):
        total = least[-1][:, None] + cost
        before.append(total.argmin(axis=0))
        least.append(total.min(axis=0))
    return np.stack(least), np.stack(before)
