"""Tasks, goals, instructions and subtask indices of episodes."""

from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np

from embodied_rm.types import Episode, IntArray

UNLABELED_SUBTASK = -1  # subtask index of a frame without annotation; such frames have no subtask loss


def task_of(episode: Episode) -> str:
    """Return the recorded task name, else the instruction."""
    return episode.metadata.get("task", episode.instruction)


class HasGoal(Protocol):
    """An episode, or its metadata alone."""

    @property
    def instruction(self) -> str: ...

    @property
    def metadata(self) -> Mapping[str, str]: ...


def goal_of(episode: HasGoal) -> str:
    """Return the recorded goal, else the instruction. Episodes with equal values have the same goal."""
    return episode.metadata.get("goal", episode.instruction)


def recorded_goal_of(episode: Episode) -> str | None:
    """Return the recorded goal, else the task name, else None. Episodes with different values have different goals.

    Different instructions prove nothing: they may be paraphrases.
    """
    return episode.metadata.get("goal", episode.metadata.get("task"))


def instructions_of(episode: Episode) -> tuple[str, ...]:
    """Return the instruction and its recorded paraphrases (meta column `paraphrases`)."""
    return tuple(dict.fromkeys([episode.instruction, *split_text_column(episode, "paraphrases")]))


def split_text_column(episode: Episode, column: str) -> tuple[str, ...]:
    """Split a meta column of sentences separated by " | "; empty without the column."""
    return tuple(filter(None, episode.metadata.get(column, "").split(" | ")))


def subtask_orders(episodes: Iterable[Episode]) -> dict[str, tuple[str, ...]]:
    """Return task -> subtask names, in the order of the episode with the most distinct subtasks.

    Failures count only for a task without successes, because their order may be wrong.
    """
    orders: dict[str, tuple[bool, tuple[str, ...]]] = {}
    for episode in episodes:
        subtask_names = tuple(dict.fromkeys(subtask.name for subtask in episode.subtasks))
        best_succeeded, best_names = orders.get(task_of(episode), (False, ()))
        if subtask_names and ((episode.success is not False), len(subtask_names)) > (best_succeeded, len(best_names)):
            orders[task_of(episode)] = (episode.success is not False, subtask_names)
    return {task: names for task, (_, names) in orders.items()}


def subtask_indices(episode: Episode, order: tuple[str, ...]) -> IntArray:
    """Return the index in `order` of the current subtask, int64 [T].

    Between two subtasks it is the next one, after the last one the last. It is `UNLABELED_SUBTASK` without annotation
    and for names that are not in `order`.
    """
    if not episode.subtasks:
        return np.full(len(episode), UNLABELED_SUBTASK)
    index_of = {name: k for k, name in enumerate(order)}
    indices = np.array([index_of.get(subtask.name, UNLABELED_SUBTASK) for subtask in episode.subtasks])
    ends = [subtask.end for subtask in episode.subtasks]
    current = np.searchsorted(ends, np.arange(len(episode)), side="right")
    return indices[np.minimum(current, len(indices) - 1)]
