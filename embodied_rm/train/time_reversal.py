"""Videos played backwards: who sees a drawer being opened has also seen one being closed.

A video in whose last step something was achieved becomes one in which that is undone, under an opposite instruction
that the data name (the meta column `opposites`). Images of a thing at rest do not tell which way time runs.
Source: time reversal as self-supervision (Nair et al., arXiv 1810.01128).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from embodied_rm.errors import DataError
from embodied_rm.labels.subtasks import goal_of, split_text_column, subtask_orders, task_of
from embodied_rm.labels.visual_change import frame_changes
from embodied_rm.types import Array, Episode

OPPOSITES_COLUMN = "opposites"
"""The meta column that names the sentences for the last step played backwards."""
MIN_FINAL_FRACTION = 0.25
"""Least share of the last step that a video must end with to be worth undoing."""
MIN_UNDO_FRACTION = 0.02
"""Change of the last step's share from which on the undoing is under way."""
MAX_IMMEDIATE_FRAMES = 3
"""Frames within which the undoing is under way if the hand was there when the video began."""
STILL_CHANGE_THRESHOLD = 0.6
"""Change of the images, see `visual_change.changes`, below which nothing moves."""


def add_time_reversals(episodes: Sequence[Episode]) -> list[Episode]:
    """The episodes, and those of them that can be played backwards, backwards.

    Raises `DataError` where no episode names an opposite.
    """
    if not any(split_text_column(episode, OPPOSITES_COLUMN) for episode in episodes):
        raise DataError(
            f"reversals=true plays videos backwards under an opposite instruction, but no episode has the column "
            f"{OPPOSITES_COLUMN}; embodied-rm collect records it for tasks that have one"
        )
    orders = subtask_orders(episodes)
    reversals = (reverse_episode(episode, len(orders.get(task_of(episode), ()))) for episode in episodes)
    return [*episodes, *(episode for episode in reversals if episode is not None)]


def reverse_episode(episode: Episode, num_subtasks: int) -> Episode | None:
    """The video played backwards under its first opposite instruction, the others its paraphrases; None where there is
    nothing to undo. `steps`: of its task, whose last one is undone."""
    opposites, fraction = split_text_column(episode, OPPOSITES_COLUMN), last_subtask_progress(episode, num_subtasks)
    if not opposites or fraction is None:
        return None
    change = frame_changes(episode)
    last = int(np.flatnonzero(change > STILL_CHANGE_THRESHOLD)[-1])
    if fraction[last] < MIN_FINAL_FRACTION:
        return None
    reversed_views = {name: frames[last::-1] for name, frames in episode.views.items()}
    reversal = replace(episode, name=f"{episode.name} backwards", views=reversed_views, instruction=opposites[0], success=True,
                   subtasks=(), progress=None, state=None, action=None, predictions=None)  # fmt: skip
    meta = {**episode.metadata, "goal": f"not: {goal_of(episode)}", "paraphrases": " | ".join(opposites)}
    return replace(
        reversal, progress=undo_progress(fraction[last::-1], np.append(change[:1], change[last:0:-1])), metadata=meta
    )


def last_subtask_progress(episode: Episode, num_subtasks: int) -> Array | None:
    """float32 [T]: share of the last step that is done; None where the true progress or the steps are unknown."""
    if episode.progress is None or not num_subtasks:
        return None
    return np.clip(episode.progress * num_subtasks - (num_subtasks - 1), 0, 1)


def undo_progress(fraction: Array, change: Array) -> Array:
    """float32 [T] in [0, 1]: half for getting there, as the images change, half for what is undone of `share` [T].

    `share` begins with what is to be undone. A video that begins with it under way has got there.
    """
    undo_start = int(np.argmax(fraction < fraction[0] - MIN_UNDO_FRACTION))
    motion = np.maximum(change[1 : undo_start + 1] - STILL_CHANGE_THRESHOLD, 0)
    approach = np.ones(len(fraction))
    if len(motion) > MAX_IMMEDIATE_FRAMES and motion.any():
        cumulative = np.cumsum(motion, dtype=np.float64)
        approach[: undo_start + 1] = np.append(0, cumulative / cumulative[-1])
    undone_fraction = np.clip(1 - fraction / fraction[0], 0, 1)
    return (0.5 * approach + 0.5 * undone_fraction).astype(np.float32)
