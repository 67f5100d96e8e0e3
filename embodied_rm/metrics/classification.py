"""Metrics of success predictions, subtask segments and preferences between trajectories."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import scipy

from embodied_rm.types import BoolArray, IntArray, equal_runs

LabeledInterval = tuple[int, int, int]  # (label, first frame, frame after the last)
MIN_IOU = 0.5  # smallest intersection over union of a matched segment: F1@50
MIN_TRUTH_GAP = 0.1  # smallest difference in true value of two trajectories that are compared


def roc_auc(score: npt.ArrayLike, positive: BoolArray) -> float:
    """Return the probability that a random positive scores above a random negative (Mann-Whitney U); a tie counts 1/2.

    In [0, 1]; `nan` if one class is empty.
    """
    positive = np.asarray(positive, dtype=bool)
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    if n_positive == 0 or n_negative == 0:
        return math.nan
    rank_sum = scipy.stats.rankdata(np.asarray(score, dtype=np.float64))[positive].sum()
    return float((rank_sum - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative))


def mcc(predicted: BoolArray, positive: BoolArray) -> float:
    """Return the Matthews correlation coefficient of predictions bool [N] with the true class bool [N].

    The value is in [-1, 1]. Random predictions get 0 for any share of positives. `nan` if either side has one value
    only. Matthews 1975.
    """
    predicted, positive = np.asarray(predicted, dtype=bool), np.asarray(positive, dtype=bool)
    assert predicted.shape == positive.shape
    if predicted.all() or not predicted.any() or positive.all() or not positive.any():
        return math.nan
    return float(np.corrcoef(predicted, positive)[0, 1])


def best_threshold(score: npt.ArrayLike, positive: BoolArray) -> float:
    """Return the threshold t at which the predictions `score >= t` have the largest `mcc` with the true class.

    The correlation weighs false and missed positives by their shares, so many easy negatives do not decide. All t
    between two neighboring scores predict the same: the middle is returned, and of equally good intervals that of the
    widest. Neither side of it is then favored.

    Args:
        score: Scores [N].
        positive: True class, bool [N].

    Returns:
        The threshold; every score is on one of its sides, and both sides have scores. `nan` if one class is empty or
        all scores are equal.
    """
    values, index = np.unique(score, return_inverse=True)
    positive = np.asarray(positive, dtype=bool)
    num_positive, num_negative = int(positive.sum()), int((~positive).sum())
    if not num_positive or not num_negative or len(values) < 2:
        return math.nan
    # Counts of positive predictions, at the threshold of each value but the smallest.
    true_positives, false_positives = (
        np.bincount(index, weights=side)[::-1].cumsum()[::-1][1:] for side in (positive, ~positive)
    )
    predicted = true_positives + false_positives
    # The numerator TP * TN - FP * FN, and the factors of the denominator that depend on the threshold.
    numerator = true_positives * num_negative - false_positives * num_positive
    correlation = numerator / np.sqrt(predicted * (len(positive) - predicted))
    is_best = np.isclose(correlation, correlation.max(), rtol=1e-9)
    below = int(np.where(is_best, np.diff(values), -1).argmax())
    lower, upper = values[below], values[below + 1]
    middle = lower + (upper - lower) / 2
    return float(middle if middle > lower else upper)  # neighboring floats have no middle


def break_even_threshold(probability: npt.ArrayLike, num_positive: int) -> float:
    """Return the threshold t at which `probability >= t` predicts as many positives as there are.

    Missed and false positives are then equally many: precision equals recall, the break-even point of Lewis, SIGIR
    1992. Equal probabilities at the limit are all predicted.

    Args:
        probability: Predicted probabilities [N], in [0, 1].
        num_positive: How many are positive, 0 to N.

    Returns:
        The middle between the last predicted probability and the next lower one, in (0, 1].
    """
    descending = [1.0, *sorted(np.asarray(probability, dtype=np.float64).tolist(), reverse=True), 0.0]
    middle = (descending[num_positive] + descending[num_positive + 1]) / 2
    return max(middle, float(np.finfo(np.float32).tiny))


def match_segments(predicted: npt.ArrayLike, target: npt.ArrayLike, min_iou: float = MIN_IOU) -> tuple[int, int, int]:
    """Count matched, spurious and missed segments of two label sequences [T] (Lea et al., CVPR 2017, section 4).

    A predicted segment matches a true one of the same label with intersection over union of at least `min_iou`. Each
    true segment matches once. Return (true positives, false positives, false negatives).
    """
    predicted_segments, true_segments = equal_runs(predicted), equal_runs(target)
    unmatched = set(range(len(true_segments)))
    for segment in predicted_segments:
        best = max(range(len(true_segments)), key=lambda k: _temporal_iou(segment, true_segments[k]), default=-1)
        if best in unmatched and _temporal_iou(segment, true_segments[best]) >= min_iou:
            unmatched.remove(best)
    num_matched = len(true_segments) - len(unmatched)
    return num_matched, len(predicted_segments) - num_matched, len(unmatched)


def segmentation_f1(matches: Iterable[tuple[int, int, int]]) -> float:
    """Return the F1 score over all videos, from the `match_segments` counts of each.

    The score is in [0, 1]; `nan` if there are no segments on either side.
    """
    true_positives, false_positives, false_negatives = np.array([*matches, (0, 0, 0)]).sum(axis=0).tolist()
    denominator = 2 * true_positives + false_positives + false_negatives
    return 2 * true_positives / denominator if denominator else math.nan


def _temporal_iou(a: LabeledInterval, b: LabeledInterval) -> float:
    """Return the intersection over union in time; 0 for different labels."""
    intersection = max(0, min(a[2], b[2]) - max(a[1], b[1]))
    union = a[2] - a[1] + b[2] - b[1] - intersection
    return intersection / union if a[0] == b[0] else 0.0


def preferred_pairs(truth: npt.ArrayLike, groups: Sequence[str], margin: float = MIN_TRUTH_GAP) -> IntArray:
    """Return all (better, worse) index pairs within a group whose values differ by at least `margin`; int64 [P, 2]."""
    values, group_ids = np.asarray(truth, dtype=np.float64), np.asarray(groups)
    parts = [np.zeros((0, 2), np.int64)]
    for group in np.unique(group_ids):  # one at a time: the pairs of all groups would fill the memory
        rows = np.flatnonzero(group_ids == group)
        # The tolerance keeps a difference of exactly the margin despite rounding.
        better = values[rows, None] - values[None, rows] >= margin - 5e-7
        parts.append(rows[np.argwhere(better)])
    pairs = np.concatenate(parts)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


def preference_credit(score: npt.ArrayLike, pairs: IntArray) -> npt.NDArray[np.float64]:
    """Return 1 per (better, worse) pair [P, 2] if the better trajectory scores higher, 1/2 for a tie, else 0.

    The mean is the pairwise preference accuracy: 1/2 for random scores.
    """
    values = np.asarray(score, dtype=np.float64)
    return (1 + np.sign(values[pairs[:, 0]] - values[pairs[:, 1]])) / 2


def terciles(sizes: npt.ArrayLike) -> IntArray:
    """Return the tercile 0, 1 or 2 of each size [P], equal sizes in the same tercile; int64 [P]."""
    values = np.asarray(sizes, dtype=np.float64)
    if not values.size:
        return np.zeros(0, dtype=np.int64)
    return np.searchsorted(np.quantile(values, [1 / 3, 2 / 3]), values, side="left")
