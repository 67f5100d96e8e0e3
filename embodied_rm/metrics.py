"""What a reward model is judged by: order, error, separation of success from failure, and success rates with intervals.

Every function is pure. What does not exist (the order of a constant, the AUC of one class) is `nan`, never 0.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy import stats

from embodied_rm.types import BoolArray


def voc(progress: npt.ArrayLike, order: npt.ArrayLike | None = None) -> float:
    """Value-order correlation: Spearman's rank correlation of the progress [T] with the order of its frames.

    `order` [T] is time when None (GVL, arXiv 2411.04549). In [-1, 1]; `nan` when either side is constant or T < 2.
    """
    values = np.asarray(progress, dtype=np.float64)
    ranks = np.arange(len(values)) if order is None else np.asarray(order, dtype=np.float64)
    assert values.shape == ranks.shape
    if len(values) < 2 or np.ptp(values) == 0 or np.ptp(ranks) == 0:
        return math.nan
    return float(np.corrcoef(stats.rankdata(values), stats.rankdata(ranks))[0, 1])


def mae(progress: npt.ArrayLike, truth: npt.ArrayLike) -> float:
    """Mean absolute error of the progress [T] with the true one [T]; `nan` for no frames."""
    values, target = np.asarray(progress, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    assert values.shape == target.shape
    return float(np.abs(values - target).mean()) if values.size else math.nan


def roc_auc(score: npt.ArrayLike, positive: BoolArray) -> float:
    """Probability that a random positive scores above a random negative, ties counting one half (Mann-Whitney U).

    `score` [N], `positive` bool [N]. In [0, 1]; `nan` when one class is empty.
    """
    positive = np.asarray(positive, dtype=bool)
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    if n_positive == 0 or n_negative == 0:
        return math.nan
    rank_sum = stats.rankdata(np.asarray(score, dtype=np.float64))[positive].sum()
    return float((rank_sum - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative))


def wilson_interval(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson score interval of a success rate, inside [0, 1]; (0, 1) when nothing was tried (Wilson 1927)."""
    assert 0 <= successes <= n and 0 < confidence < 1
    if n == 0:
        return 0.0, 1.0
    z = float(stats.norm.ppf((1 + confidence) / 2))
    rate = successes / n
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    # At the ends the bound is exactly 0 or 1; rounding may not move the rate out of its own interval.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return low, high
