"""Which step of its task is under way at every frame."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from embodied_rm.types import Episode, IntArray

UNLABELED_SUBTASK = -1
"""Step index of a frame whose step nobody annotated; such frames carry no step loss."""


def task_of(episode: Episode) -> str:
    """What tells one task from another: the recorded task name, else the instruction."""
    return episode.metadata.get("task", episode.instruction)


def goal_of(episode: Episode) -> str:
    """Episodes with this in common want the same: the recorded goal, else the instruction word for word."""
    return episode.metadata.get("goal", episode.instruction)


def recorded_goal_of(episode: Episode) -> str | None:
    """Episodes that differ in this want different things: the recorded goal, else the task; None when neither is known.

    Two instructions do not tell: they may be two phrasings of one wish.
    """
    return episode.metadata.get("goal", episode.metadata.get("task"))


def instructions_of(episode: Episode) -> tuple[str, ...]:
    """The instruction, and the other sentences for the same wish that the recording names (column `paraphrases`)."""
    return tuple(dict.fromkeys([episode.instruction, *split_text_column(episode, "paraphrases")]))


def split_text_column(episode: Episode, column: str) -> tuple[str, ...]:
    """The sentences of a meta column, in which " | " stands between them; none where there is no such column."""
    return tuple(filter(None, episode.metadata.get(column, "").split(" | ")))


def subtask_orders(episodes: Iterable[Episode]) -> dict[str, tuple[str, ...]]:
    """Task -> names of its steps in order: by first appearance in the episode that shows most of them.

    Failures show steps too, but not in order; they count only for a task that nobody was seen to do.
    """
    orders: dict[str, tuple[bool, tuple[str, ...]]] = {}
    for episode in episodes:
        subtask_names = tuple(dict.fromkeys(subtask.name for subtask in episode.subtasks))
        best_succeeded, best_names = orders.get(task_of(episode), (False, ()))
        if subtask_names and ((episode.success is not False), len(subtask_names)) > (best_succeeded, len(best_names)):
            orders[task_of(episode)] = (episode.success is not False, subtask_names)
    return {task: names for task, (_, names) in orders.items()}


def subtask_indices(episode: Episode, order: tuple[str, ...]) -> IntArray:
    """int64 [T]: place in `order` of the step under way; between two steps the next one, after the last the last.

    `UNLABELLED` without annotated steps, and where the step's name is not in `order`.
    """
    if not episode.subtasks:
        return np.full(len(episode), UNLABELED_SUBTASK)
    index_of = {name: k for k, name in enumerate(order)}
    indices = np.array([index_of.get(subtask.name, UNLABELED_SUBTASK) for subtask in episode.subtasks])
    ends = [subtask.end for subtask in episode.subtasks]
    current = np.searchsorted(ends, np.arange(len(episode)), side="right")
    return indices[np.minimum(current, len(indices) - 1)]
