"""What another judge said of each frame: a slow one's prediction, to be learned by a model that is fast enough to loop.

Source: ONI (arXiv 2410.23022): a large model labels what was collected, a small one learns the labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embodied_rm.errors import DataError
from embodied_rm.labels.subtasks import UNLABELED_SUBTASK
from embodied_rm.labels.targets import Targets
from embodied_rm.types import Episode, RewardOutput

SUCCESS_THRESHOLD = 0.5
"""Probability of success from which a task counts as done."""


def label(episodes: Sequence[Episode]) -> list[Targets]:
    """The targets of every episode: progress where it was scored, "done" where the judge says, else as the episode
    ended.

    Raises `DataError` naming an episode that was not judged, and where nobody says when a task is done.
    """
    targets = [_make_targets(episode) for episode in episodes]
    if not any(episode_targets.success_known.any() for episode_targets in targets):
        raise DataError(
            "labels 'judged': the judge does not say when a task is done, and of no episode is it known how it ended "
            "(a success column): nobody would say what done is"
        )
    return targets


def _make_targets(episode: Episode) -> Targets:
    predictions = episode.predictions
    if predictions is None:
        raise DataError(
            f"{episode.name}: labels 'judged' are what a judge said of it, and none did: judged=... says where"
        )
    success, success_known = success_targets(episode, predictions)
    return Targets(
        progress=np.clip(predictions.progress, 0, 1),
        progress_known=predictions.valid,
        subtask=np.full(len(episode), UNLABELED_SUBTASK),
        success=success,
        success_known=success_known,
    )


def success_targets(episode: Episode, predictions: RewardOutput) -> tuple[np.ndarray, np.ndarray]:
    """Whether the task is done, and whether that is known, bool [T] each."""
    predicted = predictions.valid & np.isfinite(predictions.success)
    predicted[0] = False  # a judge opens an episode with it
    if predicted.any():
        return np.where(predicted, predictions.success >= SUCCESS_THRESHOLD, False), predicted
    success, success_known = np.zeros((2, len(episode)), bool)
    success[-1], success_known[-1] = episode.success is True, episode.success is not None
    return success, success_known
