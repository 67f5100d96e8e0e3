"""Distance of progress from the truth, frame by frame."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt


def mae(progress: npt.ArrayLike, true_progress: npt.ArrayLike) -> float:
    """Mean absolute error of the progress [T] with the true one [T]; `nan` for no frames."""
    values, target = np.asarray(progress, dtype=np.float64), np.asarray(true_progress, dtype=np.float64)
    assert values.shape == target.shape
    return float(np.abs(values - target).mean()) if values.size else math.nan
