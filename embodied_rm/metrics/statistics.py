"""Statistics of runs: learning curves, paired tests and confidence intervals."""

import math
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import scipy

from embodied_rm.types import Array

NUM_RESAMPLES = 100_000  # number of random sign flips of `paired_permutation`; up to 16 pairs all flips are tried


def first_iteration_reaching(curve: npt.ArrayLike, level: float) -> int | None:
    """Return the first iteration, counted from 1, at which a curve [I] is at least `level`; None if there is none."""
    above = np.flatnonzero(np.asarray(curve) >= level)
    return int(above[0]) + 1 if len(above) else None


def mean_band(curves: npt.ArrayLike, confidence: float = 0.95) -> tuple[Array, Array, Array]:
    """Return mean, lower and upper bound [I] over curves [S, I]: Student's t interval, clipped to [0, 1].

    The band of a single curve has width 0.
    """
    values = np.asarray(curves, np.float32)
    mean = values.mean(axis=0)
    if len(values) < 2:
        return mean, mean, mean
    half_width = np.float32(scipy.stats.t.ppf((1 + confidence) / 2, len(values) - 1)) * scipy.stats.sem(values, axis=0)
    return mean, np.clip(mean - half_width, 0, 1), np.clip(mean + half_width, 0, 1)


def paired_difference(first: npt.ArrayLike, second: npt.ArrayLike) -> tuple[float, float, float]:
    """Return the mean of `first - second` [P] and the bounds of its 95 % interval (Student's t).

    The pairs have the same initial states. The bounds are `nan` for fewer than two pairs.
    """
    differences = np.asarray(first, float) - np.asarray(second, float)
    if len(differences) < 2:
        return float(differences.mean()), float("nan"), float("nan")
    half_width = scipy.stats.t.ppf(0.975, len(differences) - 1) * differences.std(ddof=1) / np.sqrt(len(differences))
    return float(differences.mean()), float(differences.mean() - half_width), float(differences.mean() + half_width)


def paired_permutation(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Return the one-sided p-value of Fisher's randomization test (1935) for a lower mean of `first` in pairs [P].

    The pairs have the same initial states. `nan` for fewer than two pairs.
    """
    pairs = np.asarray(first, float), np.asarray(second, float)
    if len(pairs[0]) < 2:
        return float("nan")
    test = scipy.stats.permutation_test(
        pairs,
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        alternative="less",
        n_resamples=NUM_RESAMPLES,
        vectorized=True,
        rng=0,
    )
    return float(test.pvalue)


def wilson_interval(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the Wilson score interval of a success rate in [0, 1]; (0, 1) for no trials (Wilson 1927)."""
    assert 0 <= successes <= n and 0 < confidence < 1
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)  # that of scipy takes more than a second to import
    rate = successes / n
    center = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half_width = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    # At the ends the bound is exactly 0 or 1: rounding must not exclude the rate from its own interval.
    low = 0.0 if successes == 0 else max(0.0, center - half_width)
    high = 1.0 if successes == n else min(1.0, center + half_width)
    return low, high
