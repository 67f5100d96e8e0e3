"""Agreement of two orders: of frames with time, of policies with their success."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy import stats


def spearman(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Spearman's rank correlation of two vectors [N], ties by mid-ranks.

    In [-1, 1]; `nan` when either is constant or N < 2.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    assert a.shape == b.shape
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return math.nan
    return float(np.corrcoef(stats.rankdata(a), stats.rankdata(b))[0, 1])


def voc(progress: npt.ArrayLike, order: npt.ArrayLike | None = None) -> float:
    """Value-order correlation: Spearman's rank correlation of the progress [T] with the order of its frames.

    `order` [T] is time when None (GVL, arXiv 2411.04549). In [-1, 1]; `nan` when either side is constant or T < 2.
    """
    values = np.asarray(progress, dtype=np.float64)
    return spearman(values, np.arange(len(values)) if order is None else order)


def voc_f1(forward: float, backward: float) -> float:
    """Harmonic mean of VOC+ and VOC-, both 1 at best: of the video, and of the reversed one with its true order.

    In [0, 1]. Where either is 0 or below it is 0, the limit of the harmonic mean: an order in one direction does not
    make up for none in the other. `nan` when either is. VLAC, github.com/InternRobotics/VLAC.
    """
    if math.isnan(forward) or math.isnan(backward):
        return math.nan
    low = min(forward, backward)
    return 2 * forward * backward / (forward + backward) if low > 0 else 0.0


def kendall_tau_a(score: npt.ArrayLike, truth: npt.ArrayLike) -> float:
    """Kendall's tau_a [N]: pairs in the same order less pairs in opposite order, as a share of all pairs.

    A pair tied on either side counts as neither, so that ties lower the best that can be reached (Kendall 1938). In
    [-1, 1]; `nan` for N < 2.
    """
    a, b = np.asarray(score, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    assert a.shape == b.shape
    if len(a) < 2:
        return math.nan
    left, right = np.triu_indices(len(a), k=1)
    return float(np.mean(np.sign(a[left] - a[right]) * np.sign(b[left] - b[right])))
