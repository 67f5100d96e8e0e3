"""Of two trajectories the better one: how often it is told."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from embodied_rm.types import IntArray

MIN_TRUTH_GAP = 0.1
"""Two trajectories whose truths are closer than this are not compared."""


def preferred_pairs(truth: npt.ArrayLike, groups: Sequence[str], margin: float = MIN_TRUTH_GAP) -> IntArray:
    """All pairs (better, worse) of one group whose truths [N] differ by at least `margin`; int64 [P, 2]."""
    values, group_ids = np.asarray(truth, dtype=np.float64), np.asarray(groups)
    # Half a millionth below: a difference of exactly the margin counts, whatever its rounding.
    better = values[:, None] - values[None, :] >= margin - 5e-7
    return np.argwhere(better & (group_ids[:, None] == group_ids[None, :]))


def preference_credit(score: npt.ArrayLike, pairs: IntArray) -> npt.NDArray[np.float64]:
    """For each pair 1 where the better one scores higher, 1/2 where both score alike, else 0; float64 [P].

    Its mean is the pairwise preference accuracy: 1/2 for scores that know nothing.
    """
    values = np.asarray(score, dtype=np.float64)
    return (1 + np.sign(values[pairs[:, 0]] - values[pairs[:, 1]])) / 2


def terciles(sizes: npt.ArrayLike) -> IntArray:
    """0, 1 or 2 for the lowest, middle and highest third of the sizes [P], equal sizes in one third; int64 [P]."""
    values = np.asarray(sizes, dtype=np.float64)
    if not values.size:
        return np.zeros(0, dtype=np.int64)
    return np.searchsorted(np.quantile(values, [1 / 3, 2 / 3]), values, side="left")
