"""Metrics of success predictions, subtasks, uncertainty and out-of-distribution scores."""

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from embodied_rm.evaluate.progress_metrics import Metrics, nanmean
from embodied_rm.labels.labeled_episode import LabeledEpisode
from embodied_rm.metrics import (
    best_threshold,
    break_even_threshold,
    conformal_scale,
    coverage,
    expected_calibration_error,
    match_segments,
    mcc,
    roc_auc,
    segmentation_f1,
    spearman,
    split_halves,
)
from embodied_rm.types import Array, BoolArray, IntArray, RewardOutput


def prediction_table(
    predictions: Sequence[RewardOutput],
    labels: Sequence[LabeledEpisode],
    threshold: float,
    scale: float | None = None,
) -> Metrics:
    """Compute the metrics of success, subtasks and uncertainty, see `docs/metrics.md`.

    `threshold`: see `success_table`. `scale`: see `uncertainty_table`.
    """
    pairs = subtask_pairs(predictions, labels)
    hits = [predicted == actual for predicted, actual in pairs]
    return {
        **success_table(predictions, labels, threshold),
        "subtask_accuracy": nanmean(np.concatenate(hits)) if hits else np.nan,
        "segmentation_f1": segmentation_f1([match_segments(predicted, actual) for predicted, actual in pairs]),
        **uncertainty_table(predictions, labels, scale),
        "ood_rate": ood_rate(predictions),
    }


def fit_success_threshold(predictions: Sequence[RewardOutput], labels: Sequence[LabeledEpisode]) -> float | None:
    """Return the success probability that best separates done frames from the others, see `best_threshold`.

    The frames are the scored ones of which it is known. None: the episodes show only one kind.
    """
    threshold = best_threshold(*success_pairs(predictions, labels))
    return None if np.isnan(threshold) else threshold


def fit_episode_threshold(
    predictions: Sequence[RewardOutput], labels: Sequence[LabeledEpisode], patience: int = 1
) -> float | None:
    """Return the success probability above which there are as many episodes as successful ones.

    An episode of a learner ends as soon as the model reports success in `patience` frames in a row. Its largest
    probability that lasts so long therefore decides, not its last one. None: no outcome is known.
    """
    known = [(p, e.outcome) for p, e in zip(predictions, labels, strict=True) if e.outcome is not None and len(e) > 1]
    scores = [sustained_probability(p.success[1:], patience) for p, _ in known]
    return break_even_threshold(scores, sum(done for _, done in known)) if known else None


def sustained_probability(success: Array, patience: int) -> float:
    """Return the largest probability that `patience` frames in a row reach, of [T]; of all frames if they are fewer."""
    return float(sliding_window_view(success, min(patience, len(success))).min(axis=1).max())


def success_table(predictions: Sequence[RewardOutput], labels: Sequence[LabeledEpisode], threshold: float) -> Metrics:
    """Compute the metrics of success predictions; empty for a model without them, and if no outcome is known.

    `threshold`: success probability from which a frame counts as done.
    """
    pairs = [pair for pair in zip(predictions, labels, strict=True) if pair[1].outcome is not None]
    episode_success = np.array([episode.outcome for _, episode in pairs], bool)
    final_success = np.array([prediction.success[-1] for prediction, _ in pairs])
    if not pairs or np.isnan(np.concatenate([prediction.success[1:] for prediction in predictions])).any():
        return {}
    known = [(p.success[e.is_done_known], e.success[e.is_done_known]) for p, e in pairs]
    frame_success, frame_done = success_pairs(predictions, labels)
    predicted, actual = np.concatenate([p >= threshold for p, _ in known]), np.concatenate([done for _, done in known])
    return {
        "success_auc": roc_auc(final_success, episode_success),
        "mcc": mcc(final_success >= threshold, episode_success),
        "completion_accuracy": nanmean((final_success >= threshold) == episode_success),
        "ece": expected_calibration_error(frame_success, frame_done),
        "success_precision": nanmean(actual[predicted]),
        "success_recall": nanmean(predicted[actual]),
    }


def success_pairs(predictions: Sequence[RewardOutput], labels: Sequence[LabeledEpisode]) -> tuple[Array, BoolArray]:
    """Return the success probability, float32 [F], and whether the task is done, bool [F], of all scored frames.

    Frames of which it is unknown are left out, and those of episodes without a known outcome.
    """
    probabilities, done = [np.zeros(0, np.float32)], [np.zeros(0, bool)]
    for prediction, episode in zip(predictions, labels, strict=True):
        if episode.outcome is not None:
            is_known = episode.is_done_known[1:]
            probabilities.append(prediction.success[1:][is_known])
            done.append(episode.success[1:][is_known])
    return np.concatenate(probabilities), np.concatenate(done)


def uncertainty_table(
    predictions: Sequence[RewardOutput], labels: Sequence[LabeledEpisode], scale: float | None = None
) -> Metrics:
    """Compute Spearman's correlation of uncertainty and absolute error, and the coverage of progress intervals.

    `scale` is that of a calibrated model; None: it is calibrated on one half of the episodes and tested on the other.
    The coverage is nan with too few episodes to calibrate on; both are nan for a model whose uncertainty is always 0.
    """
    if not any(prediction.uncertainty.any() for prediction in predictions):
        return {"uncertainty_correlation": np.nan, "interval_coverage": np.nan}
    all_pairs = test_pairs = errors_and_uncertainties(predictions, labels)
    if scale is None:
        halves = split_halves(len(predictions))
        calibration_pairs, test_pairs = (
            errors_and_uncertainties([predictions[i] for i in half], [labels[i] for i in half]) for half in halves
        )
        scale = conformal_scale(*calibration_pairs)
    return {
        "uncertainty_correlation": spearman(*all_pairs),
        "interval_coverage": coverage(*test_pairs, scale) if np.isfinite(scale) else np.nan,
    }


def ood_rate(predictions: Sequence[RewardOutput]) -> float:
    """Compute the share of out-of-distribution frames among those with a finite score; nan if there are none."""
    ood = np.concatenate([prediction.ood[np.isfinite(prediction.ood)] for prediction in predictions])
    return nanmean(ood > 1)


def errors_and_uncertainties(
    predictions: Sequence[RewardOutput], labels: Sequence[LabeledEpisode]
) -> tuple[Array, Array]:
    """Return the absolute error of progress and the uncertainty of all scored frames of known progress, float32 [F]."""
    pairs = [pair for pair in zip(predictions, labels, strict=True) if pair[1].is_progress_known]
    empty = np.zeros(0, np.float32)
    errors = [np.abs(prediction.progress[1:] - labeled.progress[1:]) for prediction, labeled in pairs]
    uncertainties = [prediction.uncertainty[1:] for prediction, _ in pairs]
    return np.concatenate([empty, *errors]), np.concatenate([empty, *uncertainties])


def subtask_pairs(
    predictions: Sequence[RewardOutput], labels: Sequence[LabeledEpisode]
) -> list[tuple[IntArray, IntArray]]:
    """Return predicted and true subtasks of the scored frames with annotated subtasks, per episode.

    Empty for a model without subtasks (all predictions are -1).
    """
    pairs = [
        (prediction.subtask[1:][labeled.subtask[1:] >= 0], labeled.subtask[1:][labeled.subtask[1:] >= 0])
        for prediction, labeled in zip(predictions, labels, strict=True)
    ]
    if all((predicted < 0).all() for predicted, _ in pairs):
        return []
    return [(predicted, actual) for predicted, actual in pairs if len(actual)]
