"""True progress from subtask boundaries, and the relative hop between two frames (Robo-Dopamine, arXiv 2512.23703).

Progress counts finished subtasks. A hop is a fraction of the remaining progress (gain) or of the gained one (loss).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from embodied_rm.errors import DataError
from embodied_rm.labels.subtasks import subtask_indices, subtask_orders, task_of
from embodied_rm.labels.targets import Targets, targets_with_known_success
from embodied_rm.types import Array, Episode, Subtask


def label(episodes: Sequence[Episode]) -> list[Targets]:
    """Return the targets per episode; `DataError` if the true progress of one is unknown."""
    orders = subtask_orders(episodes)
    subtasks = [subtask_indices(episode, orders.get(task_of(episode), ())) for episode in episodes]
    return [
        targets_with_known_success(e, true_progress(e), subtask) for e, subtask in zip(episodes, subtasks, strict=True)
    ]


def progress_from_subtasks(subtasks: Sequence[Subtask], length: int) -> Array:
    """Return progress per frame, float32 [length] in [0, 1]: (k + tau) / K inside subtask k of K.

    tau is the elapsed fraction of the subtask. Progress is constant between subtasks, 0 before the first and 1 after
    the last. It is 1 at the last frame if the last subtask ends there.
    """
    assert subtasks and subtasks[-1].end <= length
    knots = [knot for k, s in enumerate(subtasks) for knot in ((s.start, k), (s.end, k + 1))]
    frames, subtask_counts = zip(*knots, strict=True)
    query_frames = np.append(np.arange(length - 1), max(length - 1, subtasks[-1].end))
    return (np.interp(query_frames, frames, subtask_counts) / len(subtasks)).astype(np.float32)


def true_progress(episode: Episode) -> Array:
    """Return the recorded progress, else that of the annotated subtasks of a success; float32 [T] in [0, 1].

    `DataError` if the episode has neither. Subtasks of a failure do not determine how many were left.
    """
    if episode.progress is not None:
        return episode.progress
    if episode.subtasks and episode.success is not False:
        return progress_from_subtasks(episode.subtasks, len(episode))
    reason = "a failure without a progress column" if episode.subtasks else "neither annotated subtasks nor progress"
    raise DataError(
        f"{episode.name}: {reason}; its true progress is unknown (embodied-rm collect records the column progress)"
    )


def hop(p: npt.ArrayLike, q: npt.ArrayLike) -> Array:
    """Return the relative hop, float32 in [-1, 1], between progress p and q in [0, 1]; `apply_hop` inverts it.

    The hop is (q - p) / (1 - p) forwards and (q - p) / p backwards (equation 3 with a start of 0). It is 0 if nothing
    is left to gain or lose.
    """
    p, q = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    change = q - p
    remaining = np.where(change >= 0, 1 - p, p)
    fraction = np.divide(change, remaining, out=np.zeros_like(remaining), where=remaining > 0)
    return np.clip(fraction, -1, 1).astype(np.float32)
