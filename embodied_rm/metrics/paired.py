"""Whether one way is better than another, where both were tried from the same starts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import stats

RESAMPLES = 100_000
"""Sign flips that are tried; all of them up to 16 pairs."""


def paired_difference(first: npt.ArrayLike, second: npt.ArrayLike) -> tuple[float, float, float]:
    """Mean of `first - second`, and the bounds of its 95 % interval (Student's t). [P] each; the bounds are `nan` for
    fewer than two pairs."""
    apart = np.asarray(first, float) - np.asarray(second, float)
    if len(apart) < 2:
        return float(apart.mean()), float("nan"), float("nan")
    half = stats.t.ppf(0.975, len(apart) - 1) * apart.std(ddof=1) / np.sqrt(len(apart))
    return float(apart.mean()), float(apart.mean() - half), float(apart.mean() + half)


def paired_permutation(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Probability of a mean of `first - second` at least as low if the two of every pair were exchangeable.

    One-sided: small where `first` is the smaller one. [P] each; `nan` for fewer than two pairs. Source: Fisher's
    randomisation test (1935).
    """
    pairs = np.asarray(first, float), np.asarray(second, float)
    if len(pairs[0]) < 2:
        return float("nan")
    test = stats.permutation_test(
        pairs,
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        alternative="less",
        n_resamples=RESAMPLES,
        vectorized=True,
        rng=0,
    )
    return float(test.pvalue)
