"""A reward model's predictions of complete episodes and of reversed ones, with their duration."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from embodied_rm.evaluate.progress_metrics import frames_until_success
from embodied_rm.labels.labeled_episode import LabeledEpisode, label_ground_truth
from embodied_rm.models.reward_model import Capabilities, RewardModel
from embodied_rm.models.scoring import score_episodes
from embodied_rm.types import Episode, RewardOutput


@dataclass(frozen=True, kw_only=True)
class PredictionSet:
    """A model's predictions of some episodes."""

    predictions: tuple[RewardOutput, ...]  # one per episode, with one row per frame
    reversed_predictions: tuple[RewardOutput | None, ...]
    """One per episode: of `reverse_episode` for a success, else None."""
    seconds: float  # wall time of all predictions, without decoding
    num_frames: int  # number of scored frames; all views of one timestep count as one
    interval_scale: float | None = None  # interval scale of a calibrated model, see `Capabilities`
    success_threshold: float = Capabilities().select_success_threshold()
    """Success probability from which a frame counts as done; the default is that of a model without a fitted one."""

    @property
    def seconds_per_frame(self) -> float:
        """Mean wall time per frame; nan if no frame was scored."""
        return self.seconds / self.num_frames if self.num_frames else float("nan")

    def take(self, rows: Sequence[int]) -> PredictionSet:
        """Return the predictions of the given episodes. `seconds` and `num_frames` remain those of all."""
        predictions = tuple(self.predictions[row] for row in rows)
        reversed_predictions = tuple(self.reversed_predictions[row] for row in rows)
        return replace(self, predictions=predictions, reversed_predictions=reversed_predictions)


def predict_episodes(
    model: RewardModel,
    episodes: Sequence[Episode],
    goals: Sequence[Episode] | None = None,
    references: Sequence[Episode] | None = None,
) -> PredictionSet:
    """Score every episode, and every success reversed. `goals`: episodes that end with the goal image of each one."""
    labels = label_ground_truth(episodes)
    success_rows = [i for i, episode in enumerate(labels) if episode.outcome]
    reversed_episodes = [reverse_episode(episodes[i], labels[i]) for i in success_rows]
    start_time = time.perf_counter()
    predictions = score_episodes(model, episodes, goals, references)
    reversed_goals, reversed_references = (
        [source[i] for i in success_rows] if source is not None else None for source in (goals, references)
    )
    success_predictions = score_episodes(model, reversed_episodes, reversed_goals, reversed_references)
    seconds = time.perf_counter() - start_time
    # A reference decides success in another way than the head that the threshold was fitted for.
    success_capabilities = model.capabilities if references is None else model.capabilities.without_calibration()
    prediction_by_row = dict(zip(success_rows, success_predictions, strict=True))
    return PredictionSet(
        predictions=tuple(predictions),
        reversed_predictions=tuple(prediction_by_row.get(row) for row in range(len(episodes))),
        seconds=seconds,
        num_frames=sum(len(episode) - 1 for episode in (*episodes, *reversed_episodes)),
        interval_scale=model.capabilities.interval_scale,
        success_threshold=success_capabilities.select_success_threshold(),
    )


def concat_predictions(parts: Iterable[PredictionSet]) -> PredictionSet:
    """Concatenate the predictions of several sets of episodes, at least one; they share the success threshold."""
    prediction_sets = list(parts)
    scales = {part.interval_scale for part in prediction_sets}
    (success_threshold,) = {part.success_threshold for part in prediction_sets}
    return PredictionSet(
        predictions=tuple(chain.from_iterable(part.predictions for part in prediction_sets)),
        reversed_predictions=tuple(chain.from_iterable(part.reversed_predictions for part in prediction_sets)),
        seconds=sum(part.seconds for part in prediction_sets),
        num_frames=sum(part.num_frames for part in prediction_sets),
        interval_scale=scales.pop() if len(scales) == 1 else None,
        success_threshold=success_threshold,
    )


def reverse_episode(episode: Episode, labeled: LabeledEpisode) -> Episode:
    """Return the episode's first frame, followed by its frames from the first success back to the start."""
    num_frames = frames_until_success(labeled)
    views = {name: np.concatenate([frames[:1], frames[:num_frames][::-1]]) for name, frames in episode.views.items()}
    return episode.with_views(views)
