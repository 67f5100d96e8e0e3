"""What learning curves are summed up by: how soon a level was reached, and the mean with its band."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import stats

from embodied_rm.types import Array


def first_iteration_reaching(curve: npt.ArrayLike, level: float) -> int | None:
    """The first iteration, counted from 1, after which success was at least `level`; None: never. `curve` [I]."""
    above = np.flatnonzero(np.asarray(curve) >= level)
    return int(above[0]) + 1 if len(above) else None


def mean_band(curves: npt.ArrayLike, confidence: float = 0.95) -> tuple[Array, Array, Array]:
    """Mean, lower and upper bound [I] over curves [S, I]: Student's interval of the mean, cut to [0, 1].

    Of a single curve the band has no width.
    """
    values = np.asarray(curves, np.float32)
    mean = values.mean(axis=0)
    if len(values) < 2:
        return mean, mean, mean
    half_width = np.float32(stats.t.ppf((1 + confidence) / 2, len(values) - 1)) * stats.sem(values, axis=0)
    return mean, np.clip(mean - half_width, 0, 1), np.clip(mean + half_width, 0, 1)
