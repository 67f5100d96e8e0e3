"""A reward model's prediction of whole episodes, forwards and backwards, and the time it took."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from embodied_rm.evaluate.progress_metrics import frames_until_success
from embodied_rm.labels.labeled_episode import LabeledEpisode, label
from embodied_rm.models.reward_model import RewardModel
from embodied_rm.models.scoring import score_episodes
from embodied_rm.types import Episode, RewardOutput


@dataclass(frozen=True, kw_only=True)
class PredictionSet:
    """What a model says of some episodes."""

    predictions: tuple[RewardOutput, ...]
    """One an episode, a row a frame."""
    reversed_predictions: tuple[RewardOutput | None, ...]
    """One an episode: of `backward(episode)` where that is a success, None where it is not."""
    seconds: float
    """Wall time of all of it; decoding is not in it."""
    num_frames: int
    """Frames judged in that time, all views of one moment being one."""
    interval_scale: float | None = None
    """Of a calibrated model, see `NetConfig`."""

    @property
    def seconds_per_frame(self) -> float:
        """`nan` where nothing was judged: an episode of one frame has no second one."""
        return self.seconds / self.num_frames if self.num_frames else float("nan")

    def take(self, rows: Sequence[int]) -> PredictionSet:
        """The prediction of these episodes only; the time stays that of all of them."""
        predictions, reversed_predictions = (
            tuple(self.predictions[row] for row in rows),
            tuple(self.reversed_predictions[row] for row in rows),
        )
        return replace(self, predictions=predictions, reversed_predictions=reversed_predictions)


def predict_episodes(
    model: RewardModel,
    episodes: Sequence[Episode],
    goals: Sequence[Episode] | None = None,
    references: Sequence[Episode] | None = None,
) -> PredictionSet:
    """Fold the model over every episode, and over every success backwards.

    The last frame of `goals[i]` is the goal image of `episodes[i]`, `references[i]` its reference. Raises
    `DataError` naming an episode whose true progress is unknown.
    """
    labels = label(episodes)
    success_rows = [i for i, episode in enumerate(labels) if episode.success[-1]]
    reversed_episodes = [reverse_episode(episodes[i], labels[i]) for i in success_rows]
    start_time = time.perf_counter()
    predictions = score_episodes(model, episodes, goals, references)
    reversed_goals, reversed_references = (
        [source[i] for i in success_rows] if source is not None else None for source in (goals, references)
    )
    success_predictions = score_episodes(model, reversed_episodes, reversed_goals, reversed_references)
    seconds = time.perf_counter() - start_time
    num_frames = sum(len(episode) - 1 for episode in (*episodes, *reversed_episodes))
    prediction_by_row = dict(zip(success_rows, success_predictions, strict=True))
    reversed_predictions = tuple(prediction_by_row.get(row) for row in range(len(episodes)))
    scale = model.capabilities.interval_scale
    return PredictionSet(
        predictions=tuple(predictions),
        reversed_predictions=reversed_predictions,
        seconds=seconds,
        num_frames=num_frames,
        interval_scale=scale,
    )


def concat_predictions(parts: Iterable[PredictionSet]) -> PredictionSet:
    """The predictions of several collections, as one of all of them."""
    prediction_sets = list(parts)
    return PredictionSet(
        predictions=tuple(
            prediction for prediction_set in prediction_sets for prediction in prediction_set.predictions
        ),
        reversed_predictions=tuple(
            prediction for prediction_set in prediction_sets for prediction in prediction_set.reversed_predictions
        ),
        seconds=sum(prediction_set.seconds for prediction_set in prediction_sets),
        num_frames=sum(prediction_set.num_frames for prediction_set in prediction_sets),
        interval_scale=prediction_sets[0].interval_scale
        if len({prediction_set.interval_scale for prediction_set in prediction_sets}) == 1
        else None,
    )


def reverse_episode(episode: Episode, labeled: LabeledEpisode) -> Episode:
    """The episode's first frame, then its frames from the one at which it is done back to the first."""
    num_frames = frames_until_success(labeled)
    views = {name: np.concatenate([frames[:1], frames[:num_frames][::-1]]) for name, frames in episode.views.items()}
    return replace(episode, views=views, subtasks=(), progress=None, state=None, action=None, predictions=None)
