"""Success told from failure: ROC-AUC and MCC, and success rates with their interval."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy import stats

from embodied_rm.types import BoolArray


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


def mcc(predicted: BoolArray, positive: BoolArray) -> float:
    """Matthews correlation coefficient of verdicts bool [N] with the truth bool [N] (Matthews 1975).

    In [-1, 1], 0 for verdicts that know nothing, whatever the share of positives; `nan` when either side has one value.
    """
    predicted, positive = np.asarray(predicted, dtype=bool), np.asarray(positive, dtype=bool)
    assert predicted.shape == positive.shape
    if predicted.all() or not predicted.any() or positive.all() or not positive.any():
        return math.nan
    return float(np.corrcoef(predicted, positive)[0, 1])


def wilson_interval(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson score interval of a success rate, inside [0, 1]; (0, 1) when nothing was tried (Wilson 1927)."""
    assert 0 <= successes <= n and 0 < confidence < 1
    if n == 0:
        return 0.0, 1.0
    z = float(stats.norm.ppf((1 + confidence) / 2))
    rate = successes / n
    center = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half_width = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    # At the ends the bound is exactly 0 or 1; rounding may not move the rate out of its own interval.
    low = 0.0 if successes == 0 else max(0.0, center - half_width)
    high = 1.0 if successes == n else min(1.0, center + half_width)
    return low, high
