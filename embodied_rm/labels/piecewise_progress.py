"""Progress that climbs from step to step: what `stages`, `visual_change` and `discovered` have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from embodied_rm.errors import DataError
from embodied_rm.labels.subtasks import subtask_orders, task_of
from embodied_rm.labels.targets import is_demonstration
from embodied_rm.types import Array, BoolArray, Episode


@dataclass(frozen=True, kw_only=True)
class SubtaskSpan:
    """One stretch of an episode in which one step is under way."""

    subtask: int
    """Its place in the order of the task's K steps."""
    start: int
    end: int
    """Frames `start` (included) to `end` (excluded)."""
    next_subtask: int | None
    """The step that it led into (K: the task was done); None: it was given up or undone."""


def subtask_spans(episode: Episode, order: Sequence[str]) -> list[SubtaskSpan]:
    """The stretches of an annotated episode; steps that are not in `order` are left out.

    A step is finished when a later one of the order follows, the last one of a demonstration with its end.
    """
    index_of = {name: k for k, name in enumerate(order)}
    subtasks = [subtask for subtask in episode.subtasks if subtask.name in index_of]
    if not subtasks:
        return []
    next_indices = [index_of[subtask.name] for subtask in subtasks[1:]] + [
        len(order) if is_demonstration(episode) else -1
    ]
    rows = [
        (subtask, index_of[subtask.name], next_index)
        for subtask, next_index in zip(subtasks, next_indices, strict=True)
    ]
    return [
        SubtaskSpan(subtask=k, start=s.start, end=s.end, next_subtask=next_index if next_index > k else None)
        for s, k, next_index in rows
    ]


def piecewise_progress(spans: Sequence[SubtaskSpan], levels: npt.ArrayLike, increments: npt.ArrayLike) -> Array:
    """float32 [T] in [0, 1]: inside a finished segment from the floor of its step to that of the step it led into,
    in proportion to the `change` [T] (> 0) from the frame before; flat on the floor of its step inside any other.

    `floors` [K + 1]: progress at which each of K steps begins, rising from 0 to 1, which is reached at the last frame
    of a demonstration at the latest. Between segments the progress is held.
    """
    levels, cumulative = np.asarray(levels, np.float64), np.cumsum(increments, dtype=np.float64)
    progress = np.zeros(len(cumulative))
    for span in spans:
        low, high = levels[span.subtask], levels[span.subtask if span.next_subtask is None else span.next_subtask]
        elapsed = cumulative[span.start : span.end] - cumulative[span.start]
        duration = cumulative[min(span.end, len(cumulative) - 1)] - cumulative[span.start]
        progress[span.start :] = high
        # A demonstration whose last step is its last frame: done.
        progress[span.start : span.end] = low + (high - low) * (elapsed / duration if duration > 0 else 1)
    return np.clip(progress, 0, 1).astype(np.float32)


def known_progress_mask(spans: Sequence[SubtaskSpan], length: int) -> BoolArray:
    """bool [length]: False from the start of a segment that was not finished to the start of the next one: how far
    such a step had come, nobody annotated."""
    mask = np.ones(length, bool)
    for span in spans:
        mask[span.start :] = span.next_subtask is not None
    return mask


def require_subtasks(episodes: Sequence[Episode], scheme: str) -> None:
    """Raises `DataError` naming a demonstration without annotated steps, or with none of its task's."""
    orders = subtask_orders(episodes)
    for episode in episodes:
        if is_demonstration(episode) and not episode.subtasks:
            raise DataError(
                f"{episode.name}: the column steps is missing, which labels {scheme!r} are made of; "
                "embodied-rm collect records it"
            )
        if is_demonstration(episode) and not subtask_spans(episode, orders[task_of(episode)]):
            found_names, task_names = (
                ", ".join(names) for names in ((s.name for s in episode.subtasks), orders[task_of(episode)])
            )
            raise DataError(
                f"{episode.name}: none of its steps ({found_names}) is one of its task ({task_names}); "
                "name them as the other recordings do"
            )
