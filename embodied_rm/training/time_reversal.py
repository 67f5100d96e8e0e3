"""Time-reversed episodes: a video of opening a drawer, played backwards, shows closing it.

The progress of the last subtask is undone, under an opposite instruction from the meta column `opposites`. Frames of
objects at rest do not reveal the direction of time.
Source: time reversal as self-supervision (Nair et al., arXiv 1810.01128).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from embodied_rm.errors import DataError
from embodied_rm.labels.subtasks import goal_of, split_text_column, subtask_orders, task_of
from embodied_rm.labels.visual_change import frame_changes
from embodied_rm.types import Array, Episode

OPPOSITES_COLUMN = "opposites"  # meta column with the instructions for the last subtask played backwards
MIN_FINAL_FRACTION = 0.25  # smallest final progress of the last subtask of a video that is reversed
MIN_UNDO_FRACTION = 0.02  # decrease of the last subtask's progress from which undoing has begun
MAX_IMMEDIATE_FRAMES = 3  # frames within which undoing begins if the hand is already there in the first frame
STILL_CHANGE_THRESHOLD = 0.6  # image change, see `visual_change.frame_changes`, below which nothing moves


def add_time_reversals(episodes: Sequence[Episode]) -> list[Episode]:
    """Append the reversals of all episodes that can be reversed; `DataError` if none has an opposite instruction."""
    if not any(split_text_column(episode, OPPOSITES_COLUMN) for episode in episodes):
        raise DataError(
            f"time_reversal=true plays videos backwards under an opposite instruction, but no episode has the column "
            f"{OPPOSITES_COLUMN}; embodied-rm collect records it for tasks that have one"
        )
    orders = subtask_orders(episodes)
    reversals = (reverse_episode(episode, len(orders.get(task_of(episode), ()))) for episode in episodes)
    return [*episodes, *(episode for episode in reversals if episode is not None)]


def reverse_episode(episode: Episode, num_subtasks: int) -> Episode | None:
    """Reverse an episode under its first opposite instruction; the other opposites become paraphrases.

    The last of `num_subtasks` is undone. None if there is nothing to undo.
    """
    opposites, fraction = split_text_column(episode, OPPOSITES_COLUMN), last_subtask_progress(episode, num_subtasks)
    if not opposites or fraction is None:
        return None
    change = frame_changes(episode)
    last = int(np.flatnonzero(change > STILL_CHANGE_THRESHOLD)[-1])
    if fraction[last] < MIN_FINAL_FRACTION:
        return None
    return replace(
        episode.with_views({name: frames[last::-1] for name, frames in episode.views.items()}),
        name=f"{episode.name} backwards",
        instruction=opposites[0],
        success=True,
        progress=undo_progress(fraction[last::-1], np.append(change[:1], change[last:0:-1])),
        metadata={**episode.metadata, "goal": f"not: {goal_of(episode)}", "paraphrases": " | ".join(opposites)},
    )


def last_subtask_progress(episode: Episode, num_subtasks: int) -> Array | None:
    """Return the progress within the last subtask, float32 [T]; None if progress or subtasks are unknown."""
    if episode.progress is None or not num_subtasks:
        return None
    return np.clip(episode.progress * num_subtasks - (num_subtasks - 1), 0, 1)


def undo_progress(fraction: Array, change: Array) -> Array:
    """Return the progress of undoing, float32 [T] in [0, 1]: half for the approach, half for the undone fraction.

    The approach advances with the image change [T]. It is complete from the start if undoing begins immediately.
    `fraction` [T] is the progress within the subtask that is undone. All are in reversed time.
    """
    undo_start = int(np.argmax(fraction < fraction[0] - MIN_UNDO_FRACTION))
    motion = np.maximum(change[1 : undo_start + 1] - STILL_CHANGE_THRESHOLD, 0)
    approach = np.ones(len(fraction))
    if len(motion) > MAX_IMMEDIATE_FRAMES and motion.any():
        cumulative = np.cumsum(motion, dtype=np.float64)
        approach[: undo_start + 1] = np.append(0, cumulative / cumulative[-1])
    undone_fraction = np.clip(1 - fraction / fraction[0], 0, 1)
    return (0.5 * approach + 0.5 * undone_fraction).astype(np.float32)
