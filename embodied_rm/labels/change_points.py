"""Where a sequence of features changes: the segments with the least variance inside, by dynamic programming (exact)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from embodied_rm.types import Array, BoolArray

MAX_SEGMENTS = 8
"""Most segments that are looked for."""
MIN_EXPLAINED_VARIANCE = 0.8
"""Share of the features' variance that the segments must explain."""


def choose_segment_count(features: Sequence[Array]) -> int:
    """The fewest steps, up to `MOST`, that explain `EXPLAINED` of the variance, mean over demonstrations [T, D]."""
    explained_variance = np.mean([_explained_variance(demonstration) for demonstration in features], axis=0)
    return (
        int(np.argmax(explained_variance >= MIN_EXPLAINED_VARIANCE)) + 1
        if explained_variance.max() >= MIN_EXPLAINED_VARIANCE
        else MAX_SEGMENTS
    )


def _explained_variance(features: Array) -> npt.NDArray[np.float64]:
    """float64 [MOST]: share of the variance that the best 1, 2, ... segments explain; 1 where nothing varies."""
    min_costs, _ = _min_costs(_segment_costs(features), MAX_SEGMENTS)
    totals = min_costs[:, -1]
    totals = np.where(np.isfinite(totals), totals, 0.0)  # fewer frames than segments: each frame its own
    return 1 - totals / totals[0] if totals[0] > 1e-9 else np.ones(MAX_SEGMENTS)


def segment_sequence(features: Array, count: int, forced_starts: BoolArray) -> list[int]:
    """Edges [0, ..., T] of the `count` segments (at most T) with the least sum of squared distances to their means.

    A segment begins wherever `forced` [T] is true; there must be fewer such frames behind the first than `count`.
    """
    cost, length = _segment_costs(features), len(features)
    num_forced = np.append(0, np.cumsum(forced_starts))
    crosses_forced = num_forced[None, 1:] - num_forced[1:, None] > 0  # [i, j - 1]: a forced edge lies between i and j
    cost[:-1, 1:][crosses_forced] = np.inf
    min_costs, last_starts = _min_costs(cost, min(count, length))
    edges = [length]
    for last_start in last_starts[: len(min_costs)][::-1]:
        edges.append(int(last_start[edges[-1]]))
    return edges[::-1]


def _segment_costs(features: Array) -> npt.NDArray[np.float64]:
    """float64 [T + 1, T + 1]: squared distances of frames i..j-1 to their mean, summed; infinite where j <= i."""
    centered = features.astype(np.float64) - features.mean(axis=0)
    sums = np.concatenate([np.zeros((1, centered.shape[1])), np.cumsum(centered, axis=0)])
    squares = np.append(0, np.cumsum((centered**2).sum(axis=1)))
    gram = sums @ sums.T
    square_norms = np.diag(gram)
    lengths = np.arange(len(sums))[None] - np.arange(len(sums))[:, None]
    within_squares = (
        squares[None]
        - squares[:, None]
        - (square_norms[None] + square_norms[:, None] - 2 * gram) / np.maximum(lengths, 1)
    )
    return np.where(lengths > 0, np.maximum(within_squares, 0), np.inf)


def _min_costs(
    cost: npt.NDArray[np.float64], max_segments: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """(least cost of the first j frames in k + 1 segments, where the last of these begins), both [most, T + 1]."""
    min_costs, last_starts = [cost[0]], [np.zeros(len(cost), np.int64)]
    for _ in range(max_segments - 1):
        total = min_costs[-1][:, None] + cost
        last_starts.append(total.argmin(axis=0))
        min_costs.append(total.min(axis=0))
    return np.stack(min_costs), np.stack(last_starts)
