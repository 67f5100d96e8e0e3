"""Metrics of progress curves: rank correlation, error and resolution."""

import math

import numpy as np
import numpy.typing as npt
import scipy

MAX_LEVELS = 1000  # largest number of progress levels that `effective_resolution` tries
MIN_VISITED_FRACTION = 0.5  # fraction of the levels that a curve must visit


def spearman(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Return Spearman's rank correlation of two vectors [N], with mid-ranks for ties.

    The value is in [-1, 1]; `nan` if either vector is constant or N < 2.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    assert a.shape == b.shape
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return math.nan
    return float(np.corrcoef(scipy.stats.rankdata(a), scipy.stats.rankdata(b))[0, 1])


def voc(progress: npt.ArrayLike, order: npt.ArrayLike | None = None) -> float:
    """Return the value-order correlation: Spearman's correlation of progress [T] with frame order (None: time).

    In [-1, 1]; `nan` if either side is constant or T < 2. GVL, arXiv 2411.04549.
    """
    values = np.asarray(progress, dtype=np.float64)
    return spearman(values, np.arange(len(values)) if order is None else order)


def voc_f1(forward: float, backward: float) -> float:
    """Return the harmonic mean of VOC+ and VOC- (VLAC, github.com/InternRobotics/VLAC), in [0, 1].

    VOC- is that of the reversed video with its true order; both are 1 at best. A value at or below 0 in one direction
    gives 0, the limit of the harmonic mean; `nan` if either input is.
    """
    if math.isnan(forward) or math.isnan(backward):
        return math.nan
    low = min(forward, backward)
    return 2 * forward * backward / (forward + backward) if low > 0 else 0.0


def kendall_tau_a(score: npt.ArrayLike, truth: npt.ArrayLike) -> float:
    """Return Kendall's tau_a of two vectors [N]: (concordant - discordant pairs) / all pairs.

    A tied pair counts as neither, so ties lower the best reachable value (Kendall 1938). The value is in [-1, 1];
    `nan` for N < 2.
    """
    a, b = np.asarray(score, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    assert a.shape == b.shape
    if len(a) < 2:
        return math.nan
    left, right = np.triu_indices(len(a), k=1)
    return float(np.mean(np.sign(a[left] - a[right]) * np.sign(b[left] - b[right])))


def mae(progress: npt.ArrayLike, true_progress: npt.ArrayLike) -> float:
    """Return the mean absolute error of progress [T]; `nan` for no frames."""
    values, target = np.asarray(progress, dtype=np.float64), np.asarray(true_progress, dtype=np.float64)
    assert values.shape == target.shape
    return float(np.abs(values - target).mean()) if values.size else math.nan


def effective_resolution(
    progress: npt.ArrayLike, min_visited_fraction: float = MIN_VISITED_FRACTION, max_levels: int = MAX_LEVELS
) -> float:
    """Return the effective progress resolution of a curve in bits (ProcVLM, github.com/ProcVLM/ProcVLM).

    It is log2 of the largest number of equal levels of [0, 1] of which the curve [T], clipped to [0, 1], visits
    `min_visited_fraction`. The metric ignores correctness: noise has a high resolution too. It is in
    [0, log2(max_levels)] and at most log2(T / min_visited_fraction). A constant gets log2(1 / min_visited_fraction),
    1 bit. `nan` for T < 2.
    """
    values = np.sort(np.clip(np.asarray(progress, dtype=np.float64), 0, 1))
    if len(values) < 2:
        return math.nan
    # T frames can visit at most T levels.
    levels = np.arange(1, min(max_levels, max(1, int(len(values) / min_visited_fraction))) + 1)
    # 1 belongs to the last level.
    level_of_frame = np.minimum(np.floor(levels[:, None] * values), levels[:, None] - 1)
    visited = 1 + np.count_nonzero(np.diff(level_of_frame, axis=1), axis=1)
    return math.log2(levels[visited >= min_visited_fraction * levels].max())
