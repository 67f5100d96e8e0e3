"""Predictions of another reward model as targets: a fast model learns from a slow one (ONI, arXiv 2410.23022)."""

from collections.abc import Sequence

import numpy as np

from embodied_rm.errors import DataError
from embodied_rm.labels.targets import Targets, final_outcome, make_targets
from embodied_rm.types import Episode, RewardOutput

SUCCESS_THRESHOLD = 0.5  # success probability from which the task counts as done


def label(episodes: Sequence[Episode]) -> list[Targets]:
    """Return the targets per episode: predicted progress and success at scored frames.

    Without predicted success, the recorded outcome is the target of the last frame. `DataError` if an episode has no
    predictions, or no episode has a success prediction or an outcome.
    """
    targets = [_make_targets(episode) for episode in episodes]
    if not any(episode_targets.success_known.any() for episode_targets in targets):
        raise DataError(
            "label scheme 'distilled': the scores contain no success predictions and no episode has an outcome "
            "(column success); nothing would define success"
        )
    return targets


def _make_targets(episode: Episode) -> Targets:
    predictions = episode.predictions
    if predictions is None:
        raise DataError(
            f"{episode.name}: label scheme 'distilled' needs scores of this episode; name their run folder in scores="
        )
    progress = np.clip(predictions.progress, 0, 1)
    return make_targets(progress, None, predictions.valid, *success_targets(episode, predictions))


def success_targets(episode: Episode, predictions: RewardOutput) -> tuple[np.ndarray, np.ndarray]:
    """Return (task is done, target is known), bool [T] each."""
    predicted = predictions.valid & np.isfinite(predictions.success)
    predicted[0] = False  # the first frame is the reference of an episode, not a prediction
    if predicted.any():
        return np.where(predicted, predictions.success >= SUCCESS_THRESHOLD, False), predicted
    return final_outcome(episode)
