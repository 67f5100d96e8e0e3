"""Calibration of reward models: success probabilities against frequencies, uncertainties against errors."""

import math

import numpy as np
import numpy.typing as npt

from embodied_rm.types import Array, BoolArray

TARGET_COVERAGE = 0.9  # fraction of the true values that prediction intervals should cover
NUM_BINS = 10  # number of equal-width probability bins
MIN_UNCERTAINTY = 0.01  # progress added to every uncertainty, so that no interval has width 0


def expected_calibration_error(probability: npt.ArrayLike, positive: BoolArray, num_bins: int = NUM_BINS) -> float:
    """Return the mean gap between predicted probability and observed frequency per bin, weighted by bin size.

    In [0, 1]; `nan` for no values. Bins have equal width. Naeini et al., AAAI 2015.
    """
    predicted, observed = np.asarray(probability, dtype=np.float64), np.asarray(positive, dtype=np.float64)
    assert predicted.shape == observed.shape
    if not predicted.size:
        return math.nan
    bin_index = np.minimum((predicted * num_bins).astype(np.int64), num_bins - 1)
    gaps = np.bincount(bin_index, weights=predicted - observed, minlength=num_bins)
    return float(np.abs(gaps).sum() / predicted.size)


def split_halves(count: int) -> tuple[list[int], list[int]]:
    """Split `count` episode indices into two fixed random halves. Neighboring recordings are often of the same kind."""
    order = np.random.default_rng(0).permutation(count).tolist()
    return sorted(order[::2]), sorted(order[1::2])


def conformal_scale(
    error: npt.ArrayLike, uncertainty: npt.ArrayLike, target_coverage: float = TARGET_COVERAGE
) -> float:
    """Return the interval half-width, in units of uncertainty, that covers `target_coverage` of the true values.

    Split conformal prediction (Lei et al., JASA 2018): the ceil((N + 1) target_coverage)-th smallest
    |error| / (uncertainty + `MIN_UNCERTAINTY`), for errors [N] on held-out data. Exchangeable new data are covered at
    least that often. Infinite if N is too small for the target.
    """
    score = np.sort(_scaled_errors(error, uncertainty))
    rank = math.ceil((len(score) + 1) * target_coverage)
    return float(score[rank - 1]) if rank <= len(score) else math.inf


def coverage(error: npt.ArrayLike, uncertainty: npt.ArrayLike, scale: float) -> float:
    """Return the fraction of true values inside prediction +- `scale` * (uncertainty + `MIN_UNCERTAINTY`).

    The fraction is in [0, 1]; `nan` for no values.
    """
    score = _scaled_errors(error, uncertainty)
    return float((score <= scale).mean()) if score.size else math.nan


def prediction_interval(progress: Array, uncertainty: Array, scale: float) -> tuple[Array, Array]:
    """Return the lower and upper bound, float32 in [0, 1], of predicted progress for a `conformal_scale`."""
    half_width = scale * (uncertainty + MIN_UNCERTAINTY)
    lower = np.clip(progress - half_width, 0, 1).astype(np.float32)
    upper = np.clip(progress + half_width, 0, 1).astype(np.float32)
    return lower, upper


def _scaled_errors(error: npt.ArrayLike, uncertainty: npt.ArrayLike) -> npt.NDArray[np.float64]:
    errors, uncertainties = np.asarray(error, dtype=np.float64), np.asarray(uncertainty, dtype=np.float64)
    assert errors.shape == uncertainties.shape
    return np.abs(errors) / (uncertainties + MIN_UNCERTAINTY)
