"""Progress that rises subtask by subtask, shared by the schemes `stages`, `visual_change` and `change_points`."""

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
    """An interval of an episode in which one subtask is under way."""

    subtask: int  # index among the K subtasks of the task
    start: int  # first frame
    end: int  # frame after the last one
    next_subtask: int | None  # index of the subtask that it led to (K: task done); None: abandoned or undone


def subtask_spans(episode: Episode, order: Sequence[str]) -> list[SubtaskSpan]:
    """Return the spans of an annotated episode, without subtasks that are not in `order`.

    A subtask is finished if a later one of the order follows. The last one of a demonstration is finished at its end.
    """
    index_of = {name: k for k, name in enumerate(order)}
    subtasks = [subtask for subtask in episode.subtasks if subtask.name in index_of]
    if not subtasks:
        return []
    indices = [index_of[subtask.name] for subtask in subtasks]
    next_indices = [*indices[1:], len(order) if is_demonstration(episode) else -1]
    return [
        SubtaskSpan(subtask=k, start=s.start, end=s.end, next_subtask=next_index if next_index > k else None)
        for s, k, next_index in zip(subtasks, indices, next_indices, strict=True)
    ]


def piecewise_progress(spans: Sequence[SubtaskSpan], levels: npt.ArrayLike, increments: npt.ArrayLike) -> Array:
    """Interpolate progress inside spans in order of time; float32 [T] in [0, 1].

    Inside a finished span, progress rises from the level of its subtask to that of the next one, in proportion to the
    increments (> 0, [T]). Inside an unfinished span it stays at the level of its subtask. It is constant between
    spans. `levels` [K + 1] rise from 0 to 1: the progress at the start of each of K subtasks, and at the end.
    """
    levels, cumulative = np.asarray(levels, np.float64), np.cumsum(increments, dtype=np.float64)
    progress = np.zeros(len(cumulative))
    for span in spans:
        low, high = levels[span.subtask], levels[span.subtask if span.next_subtask is None else span.next_subtask]
        elapsed = cumulative[span.start : span.end] - cumulative[span.start]
        duration = cumulative[min(span.end, len(cumulative) - 1)] - cumulative[span.start]
        progress[span.start :] = high
        # A last span of one frame has duration 0: it is done.
        progress[span.start : span.end] = low + (high - low) * (elapsed / duration if duration > 0 else 1)
    return np.clip(progress, 0, 1).astype(np.float32)


def subtask_frame_counts(spans: Sequence[SubtaskSpan], num_subtasks: int) -> npt.NDArray[np.float64]:
    """Return the number of frames in the spans of each subtask, float64 [num_subtasks]."""
    frame_counts = np.zeros(num_subtasks)
    for span in spans:
        frame_counts[span.subtask] += span.end - span.start
    return frame_counts


def known_progress_mask(spans: Sequence[SubtaskSpan], length: int) -> BoolArray:
    """Return where progress is known, bool [length]: not from the start of an unfinished span to that of the next."""
    mask = np.ones(length, bool)
    for span in spans:
        mask[span.start :] = span.next_subtask is not None
    return mask


def require_subtasks(episodes: Sequence[Episode], scheme: str) -> None:
    """Raise `DataError` if no demonstration has annotated subtasks, or one has only subtasks of other tasks."""
    orders = subtask_orders(episodes)
    annotated = [episode for episode in episodes if is_demonstration(episode) and episode.subtasks]
    if not annotated:
        raise DataError(
            f"label scheme {scheme!r} needs annotated subtasks, and no demonstration has any; "
            "embodied-rm annotate marks them"
        )
    for episode in annotated:
        if not subtask_spans(episode, orders[task_of(episode)]):
            found_names = ", ".join(subtask.name for subtask in episode.subtasks)
            task_names = ", ".join(orders[task_of(episode)])
            raise DataError(
                f"{episode.name}: none of its subtasks ({found_names}) belongs to its task ({task_names}); "
                "use the names of the other recordings"
            )
