"""Steps as segments of time: how many of them are found, in the right place and under the right name."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Segment = tuple[int, int, int]
"""Label, first frame, frame behind the last."""
OVERLAP = 0.5
"""Least intersection over union of a segment that is found: F1@50."""


def segment_matches(named: npt.ArrayLike, true: npt.ArrayLike, overlap: float = OVERLAP) -> tuple[int, int, int]:
    """Segments found, segments made up, segments missed, of two label sequences int [T].

    A named segment is found when its overlap (intersection over union) with a true one of the same label is at least
    `overlap` and nobody has found that one before. Lea et al., CVPR 2017, section 4.
    """
    ours, theirs = _segments(named), _segments(true)
    free = set(range(len(theirs)))
    for segment in ours:
        best = max(range(len(theirs)), key=lambda k: _overlap(segment, theirs[k]), default=-1)
        if best in free and _overlap(segment, theirs[best]) >= overlap:
            free.remove(best)
    found = len(theirs) - len(free)
    return found, len(ours) - found, len(free)


def segmentation_f1(matches: Iterable[tuple[int, int, int]]) -> float:
    """F1 of the segments of all videos together, from `segment_matches` of each.

    In [0, 1]; `nan` when there is no segment on either side.
    """
    found, made_up, missed = np.array([*matches, (0, 0, 0)]).sum(axis=0).tolist()
    total = 2 * found + made_up + missed
    return 2 * found / total if total else math.nan


def _segments(labels: npt.ArrayLike) -> list[Segment]:
    values = np.asarray(labels)
    edges = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    return [(int(values[i]), i, j) for i, j in pairwise(edges) if j > i]


def _overlap(one: Segment, other: Segment) -> float:
    """Intersection over union in time; 0 for different labels."""
    shared = max(0, min(one[2], other[2]) - max(one[1], other[1]))
    union = one[2] - one[1] + other[2] - other[1] - shared
    return shared / union if one[0] == other[0] else 0.0
