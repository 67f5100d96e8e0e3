"""A reward model's judgement of whole episodes, forwards and backwards, and the time it took."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from embodied_rm.evaluate.curve_table import finish
from embodied_rm.labels.labelled import LabelledEpisode, label
from embodied_rm.models.base import RewardModel
from embodied_rm.models.fold import fold
from embodied_rm.types import Episode, Progress


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What a model says of some episodes."""

    curves: tuple[Progress, ...]
    """One an episode, a row a frame."""
    backwards: tuple[Progress | None, ...]
    """One an episode: of `backward(episode)` where that is a success, None where it is not."""
    seconds: float
    """Wall time of all of it; decoding is not in it."""
    frames: int
    """Frames judged in that time, all views of one moment being one."""
    interval_scale: float | None = None
    """Of a calibrated model, see `NetConfig`."""

    @property
    def seconds_per_frame(self) -> float:
        """`nan` where nothing was judged: an episode of one frame has no second one."""
        return self.seconds / self.frames if self.frames else float("nan")

    def take(self, rows: Sequence[int]) -> Judged:
        """The judgement of these episodes only; the time stays that of all of them."""
        curves, backwards = tuple(self.curves[row] for row in rows), tuple(self.backwards[row] for row in rows)
        return replace(self, curves=curves, backwards=backwards)


def judge(
    model: RewardModel,
    episodes: Sequence[Episode],
    goals: Sequence[Episode] | None = None,
    references: Sequence[Episode] | None = None,
) -> Judged:
    """Fold the model over every episode, and over every success backwards.

    The last frame of `goals[i]` is the goal picture of `episodes[i]`, `references[i]` its reference. Raises
    `DataError` naming an episode whose true progress is unknown.
    """
    labels = label(episodes)
    done = [i for i, episode in enumerate(labels) if episode.done[-1]]
    reversed_ = [backward(episodes[i], labels[i]) for i in done]
    started = time.perf_counter()
    curves = fold(model, episodes, goals, references)
    aims, ways = ([given[i] for i in done] if given is not None else None for given in (goals, references))
    backwards = fold(model, reversed_, aims, ways)
    seconds = time.perf_counter() - started
    frames = sum(len(episode) - 1 for episode in (*episodes, *reversed_))
    of_episode = dict(zip(done, backwards, strict=True))
    said = tuple(of_episode.get(row) for row in range(len(episodes)))
    scale = getattr(model, "interval_scale", None)
    return Judged(curves=tuple(curves), backwards=said, seconds=seconds, frames=frames, interval_scale=scale)


def joined(parts: Iterable[Judged]) -> Judged:
    """The judgements of several collections, as one of all of them."""
    known = list(parts)
    return Judged(
        curves=tuple(curve for part in known for curve in part.curves),
        backwards=tuple(curve for part in known for curve in part.backwards),
        seconds=sum(part.seconds for part in known),
        frames=sum(part.frames for part in known),
        interval_scale=known[0].interval_scale if len({part.interval_scale for part in known}) == 1 else None,
    )


def backward(episode: Episode, labels: LabelledEpisode) -> Episode:
    """The episode's first frame, then its frames from the one at which it is done back to the first."""
    end = finish(labels)
    views = {name: np.concatenate([frames[:1], frames[:end][::-1]]) for name, frames in episode.views.items()}
    return replace(episode, views=views, steps=(), progress=None, state=None, action=None, judged=None)
