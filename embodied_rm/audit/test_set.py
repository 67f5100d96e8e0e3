"""Episodes of an audit by their outcome, and the clips that are made of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from embodied_rm.errors import DataError, UserError
from embodied_rm.labels.subtasks import goal_of
from embodied_rm.labels.true_progress import progress_or_none
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rewards.rules import find_rule
from embodied_rm.types import Episode, Frames, IntArray

NEAR_DONE_PROGRESS = 0.9
"""True progress at which a success is cut to be unfinished; the rest is more than the tolerance of a prediction."""


@dataclass(frozen=True, kw_only=True)
class AuditRewardConfig:
    """Settings of the reward, as in refinement."""

    reward: RewardConfig = field(default_factory=RewardConfig)
    gamma: float = 0.98  # discount of the learner

    def __post_init__(self) -> None:
        rule = find_rule(self.reward.rule)
        if self.reward.success_source != "model" or not rule.per_step:
            raise UserError(
                f"an audit needs a reward rule that is known step by step and success_source=model, not "
                f"reward.rule={self.reward.rule} with reward.success_source={self.reward.success_source}"
            )

    @property
    def hold_frames(self) -> int:
        """Number of times that the last frame of a clip is repeated, so that success can be sustained there."""
        return self.reward.success_patience * self.reward.score_every


@dataclass(frozen=True)
class AuditClip:
    """Input of a model, and the frames whose predictions count."""

    episode: Episode
    eval_start: int = 0  # first frame at which a prediction of success counts
    num_ordered: int = 0  # number of first frames for the order correlation; 0: none
    identical_frames: tuple[int, int] = (0, 0)  # indices of two identical frames


AuditTrial = tuple[AuditClip, ...]  # clips that are compared; the first one is perturbed, and is in the report


@dataclass(frozen=True)
class AuditDataset:
    """Episodes by their outcome; `DataError` if none has a known one."""

    episodes: Sequence[Episode]
    config: AuditRewardConfig = field(default_factory=AuditRewardConfig)

    def __post_init__(self) -> None:
        if not self.successes and not self.failures:
            raise DataError(
                "no episode has a known outcome: an audit needs episodes whose success is known (a success column, "
                "as embodied-rm collect writes it) or whose subtasks are annotated"
            )

    @cached_property
    def successes(self) -> list[Episode]:
        """Episodes whose task is done at the last frame."""
        return [episode for episode in self.episodes if is_success(episode)]

    @cached_property
    def failures(self) -> list[Episode]:
        """Episodes whose task is not done at the last frame."""
        return [episode for episode in self.episodes if is_success(episode) is False]

    @cached_property
    def unfinished_clips(self) -> list[AuditClip]:
        """Unfinished clips: the failures, and successes cut at true progress `NEAR_DONE_PROGRESS`."""
        cut_successes = [
            select_frames(episode, np.arange(frame + 1))
            for episode, frame in self.successes_with_frame(NEAR_DONE_PROGRESS)
        ]
        return [
            *(AuditClip(self.hold_end(episode), eval_start=failure_start_frame(episode)) for episode in self.failures),
            *(AuditClip(self.hold_end(episode)) for episode in cut_successes),
        ]

    def hold_end(self, episode: Episode) -> Episode:
        """Return the episode with its last frame repeated, so that success can be sustained there."""
        return hold_last_frame(episode, self.config.hold_frames)

    def successes_with_frame(self, level: float) -> list[tuple[Episode, int]]:
        """Return the successes with their last frame below a level of true progress, unless it is the first frame."""
        frames = [(episode, last_frame_below(episode, level)) for episode in self.successes]
        return [(episode, frame) for episode, frame in frames if frame]

    def find_goal_episode(self, episode: Episode) -> Episode | None:
        """Return a success with the same goal, cameras and image size: another episode if there is one, or None."""
        shapes = {name: frames.shape[1:] for name, frames in episode.views.items()}
        matching = [
            other
            for other in self.successes
            if goal_of(other) == goal_of(episode)
            and shapes.items() <= {name: frames.shape[1:] for name, frames in other.views.items()}.items()
        ]
        others = [other for other in matching if other.name != episode.name]
        return next(iter(others or matching), None)


def is_success(episode: Episode) -> bool | None:
    """Return whether the task is done at the last frame: recorded, else from the true progress; None if unknown."""
    if episode.success is not None:
        return episode.success
    progress = progress_or_none(episode)
    return None if progress is None else bool(progress[-1] >= 1)


def completion_frame(episode: Episode) -> int:
    """Return the first frame at which a success is done, or the last frame if its true progress is unknown."""
    progress = progress_or_none(episode)
    done = np.zeros(0) if progress is None else np.flatnonzero(progress >= 1)
    return int(done[0]) if len(done) else len(episode) - 1


def last_frame_below(episode: Episode, level: float) -> int | None:
    """Return the last frame before completion with true progress of at most `level`; None if it is unknown."""
    progress = progress_or_none(episode)
    if progress is None:
        return None
    below = np.flatnonzero(progress[: completion_frame(episode)] <= level)
    return int(below[-1]) if len(below) else None


def failure_start_frame(episode: Episode) -> int:
    """Return the frame from which on a failure is not done; the last frame if its true progress is unknown."""
    progress = progress_or_none(episode)
    if progress is None:
        return len(episode) - 1
    done = np.flatnonzero(progress >= 1)
    return min(int(done[-1]) + 1, len(episode) - 1) if len(done) else 0


def select_frames(episode: Episode, frames: IntArray) -> Episode:
    """Return the episode with selected frames, possibly repeated, and their true progress."""
    progress = progress_or_none(episode)
    selected = episode.with_views({name: images[frames] for name, images in episode.views.items()})
    return replace(selected, progress=None if progress is None else progress[frames], success=None)


def hold_last_frame(episode: Episode, count: int) -> Episode:
    """Return the episode with its last frame repeated `count` more times."""
    return select_frames(episode, np.minimum(np.arange(len(episode) + count), len(episode) - 1))


def transform_views(episode: Episode, transform: Callable[[Frames], Frames]) -> Episode:
    """Return the episode with the images of every view transformed."""
    return replace(episode, views={name: transform(frames) for name, frames in episode.views.items()})
