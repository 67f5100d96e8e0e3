"""Step-wise reward discretisation: true progress from step boundaries, and the relative hop between two moments.

Source: Robo-Dopamine (arXiv 2512.23703), section 3: progress counts finished steps; a hop is the share of the
remaining progress that is made, or of the gained progress that is lost, between two moments.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from embodied_rm.errors import DataError
from embodied_rm.labels.subtasks import subtask_indices, subtask_orders, task_of
from embodied_rm.labels.targets import Targets, targets_with_known_success
from embodied_rm.types import Array, Episode, Subtask


def label(episodes: Sequence[Episode]) -> list[Targets]:
    """The targets of every episode. Raises `DataError` naming an episode whose true progress is unknown."""
    orders = subtask_orders(episodes)
    subtasks = [subtask_indices(episode, orders.get(task_of(episode), ())) for episode in episodes]
    return [
        targets_with_known_success(e, true_progress(e), subtask) for e, subtask in zip(episodes, subtasks, strict=True)
    ]


def progress_from_subtasks(subtasks: Sequence[Subtask], length: int) -> Array:
    """float32 [length] in [0, 1]: (k + tau) / K inside step k of K, tau its elapsed share; held between steps.

    0 before the first step, 1 after the last, or at the last frame where the last step ends with the recording.
    """
    assert subtasks and subtasks[-1].end <= length
    knots = [
        (frame, subtasks_done)
        for k, s in enumerate(subtasks)
        for frame, subtasks_done in ((s.start, k), (s.end, k + 1))
    ]
    frames, subtask_counts = zip(*knots, strict=True)
    query_frames = np.append(np.arange(length - 1), max(length - 1, subtasks[-1].end))
    return (np.interp(query_frames, frames, subtask_counts) / len(subtasks)).astype(np.float32)


def true_progress(episode: Episode) -> Array:
    """float32 [T] in [0, 1]: the recorded progress, else that of the annotated steps of a success.

    Raises `DataError` when the episode has neither: the steps of a failed try do not say how many were left.
    """
    if episode.progress is not None:
        return episode.progress
    if episode.subtasks and episode.success is not False:
        return progress_from_subtasks(episode.subtasks, len(episode))
    reason = "a failure without a progress column" if episode.subtasks else "neither annotated steps nor progress"
    raise DataError(
        f"{episode.name}: {reason}; its true progress is unknown (embodied-rm collect records the column progress)"
    )


def hop(p: npt.ArrayLike, q: npt.ArrayLike) -> Array:
    """float32 relative hop from progress p to progress q (they broadcast), in [-1, 1]; `fusion.apply_hop` inverts it.

    (q - p) / (1 - p) forwards, (q - p) / p backwards (equation 3 with a start of 0); 0 where nothing is left to gain
    or to lose.
    """
    p, q = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    change = q - p
    remaining = np.where(change >= 0, 1 - p, p)
    fraction = np.divide(change, remaining, out=np.zeros_like(remaining), where=remaining > 0)
    return np.clip(fraction, -1, 1).astype(np.float32)
