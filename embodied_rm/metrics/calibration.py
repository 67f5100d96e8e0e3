"""Whether stated doubt is the real one: probabilities against frequencies, spreads against errors."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from embodied_rm.types import Array, BoolArray

SHARE = 0.9
"""Share of the truths that intervals are to cover."""
BINS = 10
"""Equal bins of probability."""
LEAST_SPREAD = 0.01
"""Added to every spread, progress: a model that is sure of itself is given that much all the same."""


def expected_calibration_error(probability: npt.ArrayLike, positive: BoolArray, bins: int = BINS) -> float:
    """Mean gap between the probability said and the share that came true, over equal bins, by their numbers.

    `probability` [N] in [0, 1], `positive` bool [N]. In [0, 1]; `nan` for N = 0. Naeini et al., AAAI 2015.
    """
    said, came = np.asarray(probability, dtype=np.float64), np.asarray(positive, dtype=np.float64)
    assert said.shape == came.shape
    if not said.size:
        return math.nan
    bin_of = np.minimum((said * bins).astype(np.int64), bins - 1)
    return float(np.abs(np.bincount(bin_of, weights=said - came, minlength=bins)).sum() / said.size)


def halves(count: int) -> tuple[list[int], list[int]]:
    """Two halves of so many episodes, drawn by chance, always the same: recordings of one kind often alternate."""
    order = np.random.default_rng(0).permutation(count).tolist()
    return sorted(order[::2]), sorted(order[1::2])


def conformal_scale(error: npt.ArrayLike, spread: npt.ArrayLike, share: float = SHARE) -> float:
    """How many spreads the interval around a prediction must reach, for `share` of the truths to lie inside.

    Split conformal prediction: of |error| / (spread + `LEAST_SPREAD`) [N] on data held out from training the
    ceil((N + 1) share)-th smallest, so that of exchangeable new data at least `share` are covered; infinite when N is
    too small for that. Lei et al., JASA 2018.
    """
    score = np.sort(_in_spreads(error, spread))
    rank = math.ceil((len(score) + 1) * share)
    return float(score[rank - 1]) if rank <= len(score) else math.inf


def coverage(error: npt.ArrayLike, spread: npt.ArrayLike, scale: float) -> float:
    """Share of the truths inside prediction +- `scale` * (spread + `LEAST_SPREAD`); in [0, 1], `nan` for none."""
    score = _in_spreads(error, spread)
    return float((score <= scale).mean()) if score.size else math.nan


def interval(value: Array, spread: Array, scale: float) -> tuple[Array, Array]:
    """Lower and upper bound, float32 in [0, 1], of progress `value` with that `spread`, by a `conformal_scale`."""
    width = scale * (spread + LEAST_SPREAD)
    return np.clip(value - width, 0, 1).astype(np.float32), np.clip(value + width, 0, 1).astype(np.float32)


def _in_spreads(error: npt.ArrayLike, spread: npt.ArrayLike) -> npt.NDArray[np.float64]:
    wrong, width = np.asarray(error, dtype=np.float64), np.asarray(spread, dtype=np.float64)
    assert wrong.shape == width.shape
    return np.abs(wrong) / (width + LEAST_SPREAD)
