"""Step-wise reward discretisation: true progress from step boundaries, and the relative hop between two moments.

Source: Robo-Dopamine (arXiv 2512.23703), section 3: progress counts finished steps; a hop is the share of the
remaining progress that is made, or of the gained progress that is lost, between two moments.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from embodied_rm.errors import DataError
from embodied_rm.labels.steps import step_indices, step_orders, task_of
from embodied_rm.labels.targets import Targets, watched
from embodied_rm.types import Array, Episode, Step


def label(episodes: Sequence[Episode]) -> list[Targets]:
    """The targets of every episode. Raises `DataError` naming an episode whose true progress is unknown."""
    orders = step_orders(episodes)
    steps = [step_indices(episode, orders.get(task_of(episode), ())) for episode in episodes]
    return [watched(e, true_progress(e), step) for e, step in zip(episodes, steps, strict=True)]


def progress_from_steps(steps: Sequence[Step], length: int) -> Array:
    """float32 [length] in [0, 1]: (k + tau) / K inside step k of K, tau its elapsed share; held between steps.

    0 before the first step, 1 after the last, or at the last frame where the last step ends with the recording.
    """
    assert steps and steps[-1].end <= length
    corners = [(frame, share) for k, s in enumerate(steps) for frame, share in ((s.start, k), (s.end, k + 1))]
    frames, shares = zip(*corners, strict=True)
    shown = np.append(np.arange(length - 1), max(length - 1, steps[-1].end))
    return (np.interp(shown, frames, shares) / len(steps)).astype(np.float32)


def true_progress(episode: Episode) -> Array:
    """float32 [T] in [0, 1]: the recorded progress, else that of the annotated steps of a success.

    Raises `DataError` when the episode has neither: the steps of a failed try do not say how many were left.
    """
    if episode.progress is not None:
        return episode.progress
    if episode.steps and episode.success is not False:
        return progress_from_steps(episode.steps, len(episode))
    kind = "a failure without a progress column" if episode.steps else "neither annotated steps nor progress"
    raise DataError(
        f"{episode.name}: {kind}; its true progress is unknown (embodied-rm collect records the column progress)"
    )


def hop(p: npt.ArrayLike, q: npt.ArrayLike) -> Array:
    """float32 relative hop from progress p to progress q (they broadcast), in [-1, 1]; `fusion.apply_hop` inverts it.

    (q - p) / (1 - p) forwards, (q - p) / p backwards (equation 3 with a start of 0); 0 where nothing is left to gain
    or to lose.
    """
    p, q = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    change = q - p
    room = np.where(change >= 0, 1 - p, p)
    share = np.divide(change, room, out=np.zeros_like(room), where=room > 0)
    return np.clip(share, -1, 1).astype(np.float32)
