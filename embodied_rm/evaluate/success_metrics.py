"""What a prediction says beyond progress: done or not, which step, how sure, how unusual."""

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
    """The metrics of verdicts, steps and spread; `docs/metrics.md` says what they are. `scale`: see `doubt_table`."""
    return {
        **success_table(predictions, labels),
        "subtask_accuracy": subtask_accuracy(predictions, labels),
        "segmentation_f1": segmentation_f1(episode_matches(predictions, labels)),
        **uncertainty_table(predictions, labels, scale),
        "ood_rate": ood_rate(predictions),
    }


def success_table(predictions: Sequence[RewardOutput], labels: Sequence[LabeledEpisode]) -> Metrics:
    """The metrics of verdicts; none of a model that never says when a task is done."""
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
    """Precision and recall of "done" over all frames; nan where nothing was called done, or nothing was."""
    predicted = np.concatenate([prediction.success >= 0.5 for prediction in predictions])
    actual = np.concatenate([episode.success for episode in labels])
    return nanmean(actual[predicted]), nanmean(predicted[actual])


def subtask_accuracy(predictions: Sequence[RewardOutput], labels: Sequence[LabeledEpisode]) -> float:
    """Share of the frames (the first one, which nobody judges, left out) with an annotated step that is named."""
    hits = [predicted == actual for predicted, actual in _subtask_pairs(predictions, labels)]
    return nanmean(np.concatenate(hits)) if hits else float("nan")


def episode_matches(
    predictions: Sequence[RewardOutput], labels: Sequence[LabeledEpisode]
) -> list[tuple[int, int, int]]:
    """`segment_matches` of every episode with annotated steps."""
    return [match_segments(predicted, actual) for predicted, actual in _subtask_pairs(predictions, labels)]


def uncertainty_table(
    predictions: Sequence[RewardOutput], labels: Sequence[LabeledEpisode], scale: float | None = None
) -> Metrics:
    """Whether `spread` is large where progress is wrong, and how much intervals made of it cover.

    uncertainty_correlation: Spearman of spread with absolute error over all judged frames. interval_coverage: the share of
    the frames that lie in the intervals of a calibrated model, by its `scale`; without one, the share of one half
    of the episodes' in intervals calibrated on the other, nan where there are too few to calibrate on. Both are nan of
    a model that never doubts.
    """
    if not any(prediction.uncertainty.any() for prediction in predictions):
        return {"uncertainty_correlation": np.nan, "interval_coverage": np.nan}
    all_pairs = test_pairs = errors_and_uncertainties(predictions, labels)
    if scale is None:
        calibration_half, test_half = (
            ([predictions[i] for i in half], [labels[i] for i in half]) for half in split_halves(len(predictions))
        )
        scale, test_pairs = (
            conformal_scale(*errors_and_uncertainties(*calibration_half)),
            errors_and_uncertainties(*test_half),
        )
    return {
        "uncertainty_correlation": spearman(*all_pairs),
        "interval_coverage": coverage(*test_pairs, scale) if np.isfinite(scale) else np.nan,
    }


def ood_rate(predictions: Sequence[RewardOutput]) -> float:
    """Share of the frames that are out of distribution, of those of which it is told; nan where it is not."""
    ood = np.concatenate([prediction.ood[np.isfinite(prediction.ood)] for prediction in predictions])
    return nanmean(ood > 1)


def errors_and_uncertainties(
    predictions: Sequence[RewardOutput], labels: Sequence[LabeledEpisode]
) -> tuple[Array, Array]:
    """Absolute error of progress and `spread` of all judged frames, float32 [F] each."""
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
    """Named and true steps of the judged frames with annotated steps, episode by episode; none of a model that knows
    no steps (stage -1 throughout)."""
    pairs = [
        (prediction.subtask[1:][labeled.subtask[1:] >= 0], labeled.subtask[1:][labeled.subtask[1:] >= 0])
        for prediction, labeled in zip(predictions, labels, strict=True)
    ]
    if all((predicted < 0).all() for predicted, _ in pairs):
        return []
    return [(predicted, actual) for predicted, actual in pairs if len(actual)]
