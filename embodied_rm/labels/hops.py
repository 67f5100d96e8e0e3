"""Step-wise reward discretisation: true progress from step boundaries, and the relative hop between two moments.

Source: Robo-Dopamine (arXiv 2512.23703), section 3: progress counts finished steps, a hop is the share of the
remaining (or of the gained) progress that the way from p to q makes (or loses).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from embodied_rm.errors import DataError
from embodied_rm.types import Array, Episode, IntArray, Step

UNLABELLED = -1
"""Step index of a frame whose step is unknown; such frames carry no step loss."""


def progress_from_steps(steps: Sequence[Step], length: int) -> Array:
    """float32 [length] in [0, 1]: (k + tau) / K inside step k of K, tau its elapsed share; held between steps.

    0 before the first step, 1 after the last.
    """
    assert steps and steps[-1].end <= length
    corners = [(frame, share) for k, s in enumerate(steps) for frame, share in ((s.start, k), (s.end, k + 1))]
    frames, shares = zip(*corners, strict=True)
    return (np.interp(np.arange(length), frames, shares) / len(steps)).astype(np.float32)


def true_progress(episode: Episode) -> Array:
    """float32 [T] in [0, 1]: the recorded progress, else that of the annotated steps of a success.

    Raises `DataError` when the episode has neither: the steps of a failed try do not say how many were left.
    """
    if episode.progress is not None:
        return episode.progress
    if episode.steps and episode.success is not False:
        return progress_from_steps(episode.steps, len(episode))
    kind = "a failed episode without a progress column" if episode.steps else "neither annotated steps nor progress"
    raise DataError(f"{episode.name}: {kind}: its true progress is unknown")


def true_steps(episode: Episode) -> IntArray:
    """int64 [T]: index of the annotated step under way (the next one between two), `UNLABELLED` without steps."""
    if not episode.steps:
        return np.full(len(episode), UNLABELLED)
    ends = np.array([step.end for step in episode.steps])
    under_way = np.searchsorted(ends, np.arange(len(episode)), side="right")
    return np.minimum(under_way, len(ends) - 1)


def hop(p: npt.ArrayLike, q: npt.ArrayLike, p0: npt.ArrayLike = 0.0) -> Array:
    """float32 relative hop from progress p to progress q, in [-1, 1]; p0 is the progress that cannot be lost.

    (q - p) / (1 - p) forwards, (q - p) / (p - p0) backwards (equation 3); 0 where nothing is left to gain or to lose.
    Its inverse is `fusion.apply_hop`.
    """
    p, q, p0 = (np.asarray(v, dtype=np.float64) for v in (p, q, p0))
    change = q - p
    room = np.where(change >= 0, 1 - p, p - p0)
    share = np.divide(change, room, out=np.zeros_like(room), where=room > 0)
    return np.clip(share, -1, 1).astype(np.float32)
