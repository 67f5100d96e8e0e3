"""What an audit is made of: the episodes by how they ended, and the videos that are made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from embodied_rm.errors import DataError, UserError
from embodied_rm.labels.hops import true_progress
from embodied_rm.labels.subtasks import goal_of
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rewards.rules import find_rule
from embodied_rm.types import Array, Episode, Frames, IntArray

NEAR_DONE_PROGRESS = 0.9
"""True progress at which a success is cut to be "nearly done": the rest is more than the edge of a verdict."""


@dataclass(frozen=True, kw_only=True)
class AuditRewardConfig:
    """How predictions become reward and verdicts, as in refinement."""

    reward: RewardConfig = field(default_factory=RewardConfig)
    gamma: float = 0.98
    """The learner's discount."""

    def __post_init__(self) -> None:
        rule = find_rule(self.reward.rule)
        if self.reward.success_source != "model" or not rule.per_step:
            raise UserError(
                f"videos are paid step by step by what a model says: not by reward.rule={self.reward.rule} with "
                f"reward.success={self.reward.success_source}"
            )

    @property
    def hold_frames(self) -> int:
        """Frames that a video's last image is held, so that a sustained verdict can be reached there."""
        return self.reward.success_patience * self.reward.score_every


@dataclass(frozen=True, kw_only=True)
class AuditClip:
    """What a model is shown, and which of its frames the answer is read from."""

    episode: Episode
    eval_start: int = 0
    """A verdict of success from this frame on is a false one (or, on an untouched success, the right one)."""
    num_ordered: int = 0
    """Frames at the start whose order is judged; 0: none."""
    identical_frames: tuple[int, int] = (0, 0)
    """Two frames that show the same."""


AuditTrial = tuple[AuditClip, ...]
"""Videos that are compared; the first is what is done to the model, and what the report shows."""


@dataclass(frozen=True)
class AuditDataset:
    """Episodes sorted by what is known of their end. Raises `DataError` when nothing is known of any."""

    episodes: Sequence[Episode]
    config: AuditRewardConfig = field(default_factory=AuditRewardConfig)

    def __post_init__(self) -> None:
        if not self.successes and not self.failures:
            raise DataError(
                "no episode says how it ended: an audit needs episodes whose success is known (a success column, "
                "as embodied-rm collect writes it) or whose sub-tasks are annotated"
            )

    @cached_property
    def successes(self) -> list[Episode]:
        """Episodes that are done at their last frame."""
        return [episode for episode in self.episodes if is_success(episode)]

    @cached_property
    def failures(self) -> list[Episode]:
        """Episodes that are not."""
        return [episode for episode in self.episodes if is_success(episode) is False]

    @cached_property
    def unfinished_clips(self) -> list[AuditClip]:
        """Videos that end undone: the failures, and successes cut where their true progress reaches `NEAR`."""
        failure_clips = [
            AuditClip(
                episode=hold_last_frame(episode, self.config.hold_frames), eval_start=failure_start_frame(episode)
            )
            for episode in self.failures
        ]
        cut_points = [(episode, last_frame_below(episode, NEAR_DONE_PROGRESS)) for episode in self.successes]
        cut_clips = [
            AuditClip(episode=hold_last_frame(select_frames(e, np.arange(frame + 1)), self.config.hold_frames))
            for e, frame in cut_points
            if frame is not None and frame
        ]
        return failure_clips + cut_clips

    @cached_property
    def _successes_by_goal(self) -> Mapping[str, list[Episode]]:
        by_goal: dict[str, list[Episode]] = {}
        for episode in self.successes:
            by_goal.setdefault(goal_of(episode), []).append(episode)
        return by_goal

    def find_goal_episode(self, episode: Episode) -> Episode | None:
        """A success with the same goal, cameras and image size, another episode if there is one."""
        shapes = {name: frames.shape[1:] for name, frames in episode.views.items()}
        matching = [
            other
            for other in self._successes_by_goal.get(goal_of(episode), ())
            if shapes.items() <= {name: frames.shape[1:] for name, frames in other.views.items()}.items()
        ]
        others = [other for other in matching if other.name != episode.name]
        return next(iter(others or matching), None)


def progress_or_none(episode: Episode) -> Array | None:
    """True progress float32 [T], recorded or from annotated steps; None when unknown."""
    try:
        return true_progress(episode)
    except DataError:
        return None


def is_success(episode: Episode) -> bool | None:
    """Whether the task is done at the last frame: recorded, else by the true progress; None when unknown."""
    if episode.success is not None:
        return episode.success
    progress = progress_or_none(episode)
    return None if progress is None else bool(progress[-1] >= 1)


def completion_frame(episode: Episode) -> int:
    """The first frame at which a success is done, by its true progress; its last frame when that is unknown."""
    progress = progress_or_none(episode)
    done = np.zeros(0) if progress is None else np.flatnonzero(progress >= 1)
    return int(done[0]) if len(done) else len(episode) - 1


def last_frame_below(episode: Episode, level: float) -> int | None:
    """The last frame before a success is done whose true progress is at most `level`; None when it is unknown."""
    progress = progress_or_none(episode)
    if progress is None:
        return None
    below = np.flatnonzero(progress[: completion_frame(episode)] <= level)
    return int(below[-1]) if len(below) else None


def failure_start_frame(episode: Episode) -> int:
    """The frame from which a failure is surely not done: behind the last that is, the last one when none is known."""
    progress = progress_or_none(episode)
    if progress is None:
        return len(episode) - 1
    done = np.flatnonzero(progress >= 1)
    return min(int(done[-1]) + 1, len(episode) - 1) if len(done) else 0


def select_frames(episode: Episode, frames: IntArray) -> Episode:
    """The episode's frames in another order, some more than once; its true progress goes along."""
    progress = progress_or_none(episode)
    return replace(
        episode,
        views={name: images[frames] for name, images in episode.views.items()},
        progress=None if progress is None else progress[frames],
        subtasks=(),
        predictions=None,
        state=None,
        action=None,
        success=None,
    )


def hold_last_frame(episode: Episode, count: int) -> Episode:
    """The episode with its last frame shown `count` times more."""
    return select_frames(episode, np.minimum(np.arange(len(episode) + count), len(episode) - 1))


def replace_views(episode: Episode, views: Mapping[str, Frames]) -> Episode:
    """The episode with other images of the same length."""
    return replace(episode, views=dict(views))
