"""Whether one way is better than another, where both were tried from the same starts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import stats

NUM_RESAMPLES = 100_000
"""Sign flips that are tried; all of them up to 16 pairs."""


def paired_difference(first: npt.ArrayLike, second: npt.ArrayLike) -> tuple[float, float, float]:
    """Mean of `first - second`, and the bounds of its 95 % interval (Student's t). [P] each; the bounds are `nan` for
    fewer than two pairs."""
    differences = np.asarray(first, float) - np.asarray(second, float)
    if len(differences) < 2:
        return float(differences.mean()), float("nan"), float("nan")
    half_width = stats.t.ppf(0.975, len(differences) - 1) * differences.std(ddof=1) / np.sqrt(len(differences))
    return float(differences.mean()), float(differences.mean() - half_width), float(differences.mean() + half_width)


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
        n_resamples=NUM_RESAMPLES,
        vectorized=True,
        rng=0,
    )
    return float(test.pvalue)
