"""Steps as segments of time: how many of them are found, in the right place and under the right name."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

LabeledInterval = tuple[int, int, int]
"""Label, first frame, frame behind the last."""
MIN_IOU = 0.5
"""Least intersection over union of a segment that is found: F1@50."""


def match_segments(predicted: npt.ArrayLike, target: npt.ArrayLike, min_iou: float = MIN_IOU) -> tuple[int, int, int]:
    """Segments found, segments made up, segments missed, of two label sequences int [T].

    A named segment is found when its overlap (intersection over union) with a true one of the same label is at least
    `overlap` and nobody has found that one before. Lea et al., CVPR 2017, section 4.
    """
    predicted_segments, true_segments = _to_segments(predicted), _to_segments(target)
    unmatched = set(range(len(true_segments)))
    for segment in predicted_segments:
        best = max(range(len(true_segments)), key=lambda k: _temporal_iou(segment, true_segments[k]), default=-1)
        if best in unmatched and _temporal_iou(segment, true_segments[best]) >= min_iou:
            unmatched.remove(best)
    num_matched = len(true_segments) - len(unmatched)
    return num_matched, len(predicted_segments) - num_matched, len(unmatched)


def segmentation_f1(matches: Iterable[tuple[int, int, int]]) -> float:
    """F1 of the segments of all videos together, from `segment_matches` of each.

    In [0, 1]; `nan` when there is no segment on either side.
    """
    true_positives, false_positives, false_negatives = np.array([*matches, (0, 0, 0)]).sum(axis=0).tolist()
    denominator = 2 * true_positives + false_positives + false_negatives
    return 2 * true_positives / denominator if denominator else math.nan


def _to_segments(labels: npt.ArrayLike) -> list[LabeledInterval]:
    values = np.asarray(labels)
    edges = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    return [(int(values[i]), i, j) for i, j in pairwise(edges) if j > i]


def _temporal_iou(a: LabeledInterval, b: LabeledInterval) -> float:
    """Intersection over union in time; 0 for different labels."""
    intersection = max(0, min(a[2], b[2]) - max(a[1], b[1]))
    union = a[2] - a[1] + b[2] - b[1] - intersection
    return intersection / union if a[0] == b[0] else 0.0
