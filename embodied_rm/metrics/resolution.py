"""How finely a progress curve tells frames apart."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

MAX_LEVELS = 1000
"""Most levels that are told apart."""
MIN_VISITED_FRACTION = 0.5
"""Share of the levels that a curve must visit."""


def effective_resolution(
    progress: npt.ArrayLike, min_visited_fraction: float = MIN_VISITED_FRACTION, max_levels: int = MAX_LEVELS
) -> float:
    """Effective progress resolution of a curve [T] in [0, 1], in bits: log2 of the most equal levels of [0, 1], up to
    `finest`, of which it visits at least the share `filled`.

    In [0, log2(finest)], and at most log2(T / filled); a constant gets log2(1 / filled), 1 bit. It says nothing of
    truth: noise is fine too. `nan` for T < 2. ProcVLM, github.com/ProcVLM/ProcVLM.
    """
    values = np.sort(np.clip(np.asarray(progress, dtype=np.float64), 0, 1))
    if len(values) < 2:
        return math.nan
    # More levels than that could not be visited by so many frames.
    levels = np.arange(1, min(max_levels, max(1, int(len(values) / min_visited_fraction))) + 1)
    # 1 belongs to the last level.
    level_of_frame = np.minimum(np.floor(levels[:, None] * values), levels[:, None] - 1)
    visited = 1 + np.count_nonzero(np.diff(level_of_frame, axis=1), axis=1)
    return math.log2(levels[visited >= min_visited_fraction * levels].max())
