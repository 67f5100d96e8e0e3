"""Metrics of success predictions, subtasks, uncertainty and out-of-distribution scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embodied_rm.evaluate.progress_metrics import Metrics, nanmean
from embodied_rm.labels.labeled_episode import LabeledEpisode
from embodied_rm.metrics import (
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
from embodied_rm.types import Array, IntArray, RewardOutput


def prediction_table(
    predictions: Sequence[RewardOutput], labels: Sequence[LabeledEpisode], scale: float | None = None
) -> Metrics:
    """Compute the metrics of success, subtasks and uncertainty, as defined in `docs/metrics.md`.

    Args:
        predictions: One per episode.
        labels: The annotations of the episodes.
        scale: See `uncertainty_table`.
    """
    return {
        **success_table(predictions, labels),
        "subtask_accuracy": subtask_accuracy(predictions, labels),
        "segmentation_f1": segmentation_f1(episode_matches(predictions, labels)),
        **uncertainty_table(predictions, labels, scale),
        "ood_rate": ood_rate(predictions),
    }


def success_table(predictions: Sequence[RewardOutput], labels: Sequence[LabeledEpisode]) -> Metrics:
    """Compute the metrics of success predictions; empty for a model without them."""
    episode_success = np.array([bool(episode.success[-1]) for episode in labels])
    final_success = np.array([prediction.success[-1] for prediction in predictions])
    frame_success = np.concatenate([prediction.success[1:] for prediction in predictions])
    if np.isnan(frame_success).any():
        return {}
    precision, recall = success_precision_recall(predictions, labels)
    return {
        "success_auc": roc_auc(final_success, episode_success),
        "mcc": mcc(final_success >= 0.5, episode_success),
        "completion_accuracy": nanmean((final_success >= 0.5) == episode_success),
        "ece": expected_calibration_error(frame_success, np.concatenate([episode.success[1:] for episode in labels])),
        "success_precision": precision,
        "success_recall": recall,
    }


def success_precision_recall(
    predictions: Sequence[RewardOutput], labels: Sequence[LabeledEpisode]
) -> tuple[float, float]:
    """Compute precision and recall of success over all frames; nan without predicted or true success."""
    predicted = np.concatenate([prediction.success >= 0.5 for prediction in predictions])
    actual = np.concatenate([episode.success for episode in labels])
    return nanmean(actual[predicted]), nanmean(predicted[actual])


def subtask_accuracy(predictions: Sequence[RewardOutput], labels: Sequence[LabeledEpisode]) -> float:
    """Compute the share of frames with an annotated subtask whose subtask is predicted, without the first frames."""
    hits = [predicted == actual for predicted, actual in _subtask_pairs(predictions, labels)]
    return nanmean(np.concatenate(hits)) if hits else float("nan")


def episode_matches(
    predictions: Sequence[RewardOutput], labels: Sequence[LabeledEpisode]
) -> list[tuple[int, int, int]]:
    """Return `match_segments` of every episode with annotated subtasks."""
    return [match_segments(predicted, actual) for predicted, actual in _subtask_pairs(predictions, labels)]


def uncertainty_table(
    predictions: Sequence[RewardOutput], labels: Sequence[LabeledEpisode], scale: float | None = None
) -> Metrics:
    """Compute the correlation of uncertainty and error, and the coverage of progress intervals.

    Args:
        predictions: One per episode.
        labels: The annotations of the episodes.
        scale: Interval scale of a calibrated model. None: it is calibrated on one half of the episodes and tested on
            the other half.

    Returns:
        `uncertainty_correlation`: Spearman's correlation of uncertainty and absolute error over all scored frames.
        `interval_coverage`: share of the frames whose true progress is in the interval; nan with too few episodes to
        calibrate on. Both are nan for a model whose uncertainty is always 0.
    """
    if not any(prediction.uncertainty.any() for prediction in predictions):
        return {"uncertainty_correlation": np.nan, "interval_coverage": np.nan}
    all_pairs = test_pairs = errors_and_uncertainties(predictions, labels)
    if scale is None:
        calibration_half, test_half = (
            ([predictions[i] for i in half], [labels[i] for i in half]) for half in split_halves(len(predictions))
        )
        scale = conformal_scale(*errors_and_uncertainties(*calibration_half))
        test_pairs = errors_and_uncertainties(*test_half)
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
    """Return the absolute error of progress and the uncertainty of all scored frames, float32 [F] each."""
    errors = [
        np.abs(prediction.progress[1:] - labeled.progress[1:])
        for prediction, labeled in zip(predictions, labels, strict=True)
    ]
    empty = np.zeros(0, np.float32)
    return np.concatenate([empty, *errors]), np.concatenate(
        [empty, *(prediction.uncertainty[1:] for prediction in predictions)]
    )


def _subtask_pairs(
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
