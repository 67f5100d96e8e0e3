"""What an audit is made of: the episodes by how they ended, and the films that are made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from embodied_rm.errors import DataError, UserError
from embodied_rm.labels.hops import true_progress
from embodied_rm.labels.steps import goal_of
from embodied_rm.rewards.rules import find_rule
from embodied_rm.rl.envs.reward_config import RewardConfig
from embodied_rm.types import Array, Episode, Frames, IntArray

NEAR = 0.9
"""True progress at which a success is cut to be "nearly done": the rest is more than the edge of a verdict."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How judgements become reward and verdicts, as in refinement."""

    reward: RewardConfig = field(default_factory=RewardConfig)
    gamma: float = 0.98
    """The learner's discount."""

    def __post_init__(self) -> None:
        rule = find_rule(self.reward.rule)
        if self.reward.success != "model" or not rule.at_once:
            raise UserError(
                f"films are paid step by step by what a model says: not by reward.rule={self.reward.rule} with "
                f"reward.success={self.reward.success}"
            )

    @property
    def hold(self) -> int:
        """Frames that a film's last picture is held, so that a sustained verdict can be reached there."""
        return self.reward.success_patience * self.reward.score_every


@dataclass(frozen=True, kw_only=True)
class Film:
    """What a model is shown, and which of its frames the answer is read from."""

    episode: Episode
    judged_from: int = 0
    """A verdict of success from this frame on is a false one (or, on an untouched success, the right one)."""
    ordered: int = 0
    """Frames at the start whose order is judged; 0: none."""
    alike: tuple[int, int] = (0, 0)
    """Two frames that show the same."""


Trial = tuple[Film, ...]
"""Films that are compared; the first is what is done to the model, and what the report shows."""


@dataclass(frozen=True)
class Material:
    """Episodes sorted by what is known of their end. Raises `DataError` when nothing is known of any."""

    episodes: Sequence[Episode]
    rules: Rules = field(default_factory=Rules)

    def __post_init__(self) -> None:
        if not self.successes and not self.failures:
            raise DataError(
                "no episode says how it ended: an audit needs episodes whose success is known (a success column, "
                "as embodied-rm collect writes it) or whose sub-tasks are annotated"
            )

    @cached_property
    def successes(self) -> list[Episode]:
        """Episodes that are done at their last frame."""
        return [episode for episode in self.episodes if succeeded(episode)]

    @cached_property
    def failures(self) -> list[Episode]:
        """Episodes that are not."""
        return [episode for episode in self.episodes if succeeded(episode) is False]

    @cached_property
    def unfinished(self) -> list[Film]:
        """Films that end undone: the failures, and successes cut where their true progress reaches `NEAR`."""
        failed = [
            Film(episode=held(episode, self.rules.hold), judged_from=undone_from(episode)) for episode in self.failures
        ]
        cuts = [(episode, reached(episode, NEAR)) for episode in self.successes]
        cut = [
            Film(episode=held(play(e, np.arange(at + 1)), self.rules.hold)) for e, at in cuts if at is not None and at
        ]
        return failed + cut

    @cached_property
    def _done(self) -> Mapping[str, list[Episode]]:
        found: dict[str, list[Episode]] = {}
        for episode in self.successes:
            found.setdefault(goal_of(episode), []).append(episode)
        return found

    def donor(self, episode: Episode) -> Episode | None:
        """A success with the same goal, cameras and picture size, another episode if there is one."""
        shapes = {name: frames.shape[1:] for name, frames in episode.views.items()}
        fitting = [
            other
            for other in self._done.get(goal_of(episode), ())
            if shapes.items() <= {name: frames.shape[1:] for name, frames in other.views.items()}.items()
        ]
        others = [other for other in fitting if other.name != episode.name]
        return next(iter(others or fitting), None)


def known_progress(episode: Episode) -> Array | None:
    """True progress float32 [T], recorded or from annotated steps; None when unknown."""
    try:
        return true_progress(episode)
    except DataError:
        return None


def succeeded(episode: Episode) -> bool | None:
    """Whether the task is done at the last frame: recorded, else by the true progress; None when unknown."""
    if episode.success is not None:
        return episode.success
    progress = known_progress(episode)
    return None if progress is None else bool(progress[-1] >= 1)


def finish(episode: Episode) -> int:
    """The first frame at which a success is done, by its true progress; its last frame when that is unknown."""
    progress = known_progress(episode)
    done = np.zeros(0) if progress is None else np.flatnonzero(progress >= 1)
    return int(done[0]) if len(done) else len(episode) - 1


def reached(episode: Episode, level: float) -> int | None:
    """The last frame before a success is done whose true progress is at most `level`; None when it is unknown."""
    progress = known_progress(episode)
    if progress is None:
        return None
    below = np.flatnonzero(progress[: finish(episode)] <= level)
    return int(below[-1]) if len(below) else None


def undone_from(episode: Episode) -> int:
    """The frame from which a failure is surely not done: behind the last that is, the last one when none is known."""
    progress = known_progress(episode)
    if progress is None:
        return len(episode) - 1
    done = np.flatnonzero(progress >= 1)
    return min(int(done[-1]) + 1, len(episode) - 1) if len(done) else 0


def play(episode: Episode, frames: IntArray) -> Episode:
    """The episode's frames in another order, some more than once; its true progress goes along."""
    progress = known_progress(episode)
    return replace(
        episode,
        views={name: pictures[frames] for name, pictures in episode.views.items()},
        progress=None if progress is None else progress[frames],
        steps=(),
        judged=None,
        state=None,
        action=None,
        success=None,
    )


def held(episode: Episode, count: int) -> Episode:
    """The episode with its last frame shown `count` times more."""
    return play(episode, np.minimum(np.arange(len(episode) + count), len(episode) - 1))


def shown(episode: Episode, views: Mapping[str, Frames]) -> Episode:
    """The episode with other pictures of the same length."""
    return replace(episode, views=dict(views))
