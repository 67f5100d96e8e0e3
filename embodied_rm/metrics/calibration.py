"""Whether stated doubt is the real one: probabilities against frequencies, spreads against errors."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from embodied_rm.types import Array, BoolArray

TARGET_COVERAGE = 0.9
"""Share of the truths that intervals are to cover."""
NUM_BINS = 10
"""Equal bins of probability."""
MIN_UNCERTAINTY = 0.01
"""Added to every spread, progress: a model that is sure of itself is given that much all the same."""


def expected_calibration_error(probability: npt.ArrayLike, positive: BoolArray, num_bins: int = NUM_BINS) -> float:
    """Mean gap between the probability said and the share that came true, over equal bins, by their numbers.

    `probability` [N] in [0, 1], `positive` bool [N]. In [0, 1]; `nan` for N = 0. Naeini et al., AAAI 2015.
    """
    predicted, observed = np.asarray(probability, dtype=np.float64), np.asarray(positive, dtype=np.float64)
    assert predicted.shape == observed.shape
    if not predicted.size:
        return math.nan
    bin_index = np.minimum((predicted * num_bins).astype(np.int64), num_bins - 1)
    return float(
        np.abs(np.bincount(bin_index, weights=predicted - observed, minlength=num_bins)).sum() / predicted.size
    )


def split_halves(count: int) -> tuple[list[int], list[int]]:
    """Two halves of so many episodes, drawn by chance, always the same: recordings of one kind often alternate."""
    order = np.random.default_rng(0).permutation(count).tolist()
    return sorted(order[::2]), sorted(order[1::2])


def conformal_scale(
    error: npt.ArrayLike, uncertainty: npt.ArrayLike, target_coverage: float = TARGET_COVERAGE
) -> float:
    """How many spreads the interval around a prediction must reach, for `share` of the truths to lie inside.

    Split conformal prediction: of |error| / (spread + `LEAST_SPREAD`) [N] on data held out from training the
    ceil((N + 1) share)-th smallest, so that of exchangeable new data at least `share` are covered; infinite when N is
    too small for that. Lei et al., JASA 2018.
    """
    score = np.sort(_scaled_errors(error, uncertainty))
    rank = math.ceil((len(score) + 1) * target_coverage)
    return float(score[rank - 1]) if rank <= len(score) else math.inf


def coverage(error: npt.ArrayLike, uncertainty: npt.ArrayLike, scale: float) -> float:
    """Share of the truths inside prediction +- `scale` * (spread + `LEAST_SPREAD`); in [0, 1], `nan` for none."""
    score = _scaled_errors(error, uncertainty)
    return float((score <= scale).mean()) if score.size else math.nan


def prediction_interval(progress: Array, uncertainty: Array, scale: float) -> tuple[Array, Array]:
    """Lower and upper bound, float32 in [0, 1], of progress `value` with that `spread`, by a `conformal_scale`."""
    half_width = scale * (uncertainty + MIN_UNCERTAINTY)
    return np.clip(progress - half_width, 0, 1).astype(np.float32), np.clip(progress + half_width, 0, 1).astype(
        np.float32
    )


def _scaled_errors(error: npt.ArrayLike, uncertainty: npt.ArrayLike) -> npt.NDArray[np.float64]:
    errors, uncertainties = np.asarray(error, dtype=np.float64), np.asarray(uncertainty, dtype=np.float64)
    assert errors.shape == uncertainties.shape
    return np.abs(errors) / (uncertainties + MIN_UNCERTAINTY)
