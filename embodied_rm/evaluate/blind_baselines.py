"""Predictions of the baselines, which use no images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embodied_rm.evaluate.predictions import PredictionSet
from embodied_rm.evaluate.progress_metrics import frames_until_success
from embodied_rm.labels.labeled_episode import LabeledEpisode
from embodied_rm.models.baselines import Baseline
from embodied_rm.types import Array, BoolArray, RewardOutput


def predict_baseline(baseline: Baseline, labels: Sequence[LabeledEpisode]) -> PredictionSet:
    """Return a baseline's predictions of episodes, and of the reversed successes.

    They have no subtasks and uncertainty 0, and take no time.
    """

    def predict(truth: Array, done: BoolArray) -> RewardOutput:
        progress, success = baseline(truth, done)
        return RewardOutput(
            progress=progress,
            valid=np.ones(len(progress), bool),
            subtask=np.full(len(progress), -1),
            success=success,
            uncertainty=np.zeros(len(progress), np.float32),
        )

    def predict_reversed(episode: LabeledEpisode) -> RewardOutput | None:
        if not episode.success[-1]:
            return None
        # The order of `predictions.reverse_episode`.
        frame_indices = np.append(0, np.arange(frames_until_success(episode) - 1, -1, -1))
        return predict(episode.progress[frame_indices], episode.success[frame_indices])

    return PredictionSet(
        predictions=tuple(predict(episode.progress, episode.success) for episode in labels),
        reversed_predictions=tuple(map(predict_reversed, labels)),
        seconds=0.0,
        num_frames=0,
    )
