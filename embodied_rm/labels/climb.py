"""Progress that climbs from step to step: what `stages`, `visual_change` and `discovered` have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from embodied_rm.errors import DataError
from embodied_rm.labels.steps import step_orders, task_of
from embodied_rm.labels.targets import demonstrates
from embodied_rm.types import Array, BoolArray, Episode


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One stretch of an episode in which one step is under way."""

    step: int
    """Its place in the order of the task's K steps."""
    start: int
    end: int
    """Frames `start` (included) to `end` (excluded)."""
    into: int | None
    """The step that it led into (K: the task was done); None: it was given up or undone."""


def segments(episode: Episode, order: Sequence[str]) -> list[Segment]:
    """The stretches of an annotated episode; steps that are not in `order` are left out.

    A step is finished when a later one of the order follows, the last one of a demonstration with its end.
    """
    places = {name: k for k, name in enumerate(order)}
    known = [step for step in episode.steps if step.name in places]
    if not known:
        return []
    after = [places[step.name] for step in known[1:]] + [len(order) if demonstrates(episode) else -1]
    pairs = [(step, places[step.name], then) for step, then in zip(known, after, strict=True)]
    return [Segment(step=k, start=s.start, end=s.end, into=then if then > k else None) for s, k, then in pairs]


def climb(parts: Sequence[Segment], floors: npt.ArrayLike, change: npt.ArrayLike) -> Array:
    """float32 [T] in [0, 1]: inside a finished segment from the floor of its step to that of the step it led into,
    in proportion to the `change` [T] (> 0) from the frame before; flat on the floor of its step inside any other.

    `floors` [K + 1]: progress at which each of K steps begins, rising from 0 to 1, which is reached at the last frame
    of a demonstration at the latest. Between segments the progress is held.
    """
    floors, gone = np.asarray(floors, np.float64), np.cumsum(change, dtype=np.float64)
    progress = np.zeros(len(gone))
    for part in parts:
        bottom, top = floors[part.step], floors[part.step if part.into is None else part.into]
        path = gone[part.start : part.end] - gone[part.start]
        whole = gone[min(part.end, len(gone) - 1)] - gone[part.start]
        progress[part.start :] = top
        # A demonstration whose last step is its last frame: done.
        progress[part.start : part.end] = bottom + (top - bottom) * (path / whole if whole > 0 else 1)
    return np.clip(progress, 0, 1).astype(np.float32)


def understood(parts: Sequence[Segment], length: int) -> BoolArray:
    """bool [length]: False from the start of a segment that was not finished to the start of the next one: how far
    such a step had come, nobody annotated."""
    known = np.ones(length, bool)
    for part in parts:
        known[part.start :] = part.into is not None
    return known


def need_steps(episodes: Sequence[Episode], scheme: str) -> None:
    """Raises `DataError` naming a demonstration without annotated steps, or with none of its task's."""
    orders = step_orders(episodes)
    for episode in episodes:
        if demonstrates(episode) and not episode.steps:
            raise DataError(
                f"{episode.name}: the column steps is missing, which labels {scheme!r} are made of; "
                "embodied-rm collect records it"
            )
        if demonstrates(episode) and not segments(episode, orders[task_of(episode)]):
            named, known = (", ".join(names) for names in ((s.name for s in episode.steps), orders[task_of(episode)]))
            raise DataError(
                f"{episode.name}: none of its steps ({named}) is one of its task ({known}); "
                "name them as the other recordings do"
            )
