"""What a labeling scheme says of an episode, and where its verdict "done" comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from embodied_rm.errors import DataError
from embodied_rm.labels.subtasks import UNLABELED_SUBTASK
from embodied_rm.types import Array, BoolArray, Episode, IntArray

SUCCESS_SETTLE_TIME_S = 0.2
"""Seconds for which a task must have been done before that is taught as "done"."""


@dataclass(frozen=True, kw_only=True)
class Targets:
    """What a scheme believes: of the T frames of an episode, or of [B, M] moments of a batch."""

    progress: Array
    """float32 in [0, 1]."""
    progress_known: BoolArray
    """Whether the scheme says anything about `progress` there."""
    subtask: IntArray
    """int64: step under way; `UNLABELLED` where the scheme names none."""
    success: BoolArray
    """Whether the task is done."""
    success_known: BoolArray
    """Whether `done` is to be learned."""

    def take(self, indices: IntArray) -> Targets:
        """The same of some frames."""
        return Targets(**{name: values[indices] for name, values in vars(self).items()})


def stack_targets(items: Sequence[Targets]) -> Targets:
    """Targets [M] of B episodes as targets [B, M]."""
    return Targets(**{name: np.stack([getattr(item, name) for item in items]) for name in vars(items[0])})


def settled_success_mask(success: BoolArray, settle_frames: int) -> BoolArray:
    """Where `done` [T] is beyond doubt, bool [T]: where it is false, from `frames` frames on after it came true, and
    at the last frame.

    What has only just come true may be lost again. A model that is told to say "done" there says so at the very edge
    of success, half the time before it; left open, the edge of its verdict falls inside.
    """
    success_start = np.maximum.accumulate(np.where(success, -1, np.arange(len(success)))) + 1
    mask = ~success | (np.arange(len(success)) - success_start >= settle_frames)
    mask[-1] = True
    return mask


def targets_with_known_success(
    episode: Episode, progress: Array, subtask: IntArray | None = None, progress_known: BoolArray | None = None
) -> Targets:
    """Targets of a scheme that sees when the task is done: where `progress` [T] is 1.

    At the last frame the recorded outcome decides: what has only just come true when a video ends may not count yet.
    """
    success = progress >= 1
    success[-1] = success[-1] if episode.success is None else episode.success
    success_known = settled_success_mask(success, round(SUCCESS_SETTLE_TIME_S * episode.fps))
    return _make_targets(progress, subtask, progress_known, success, success_known)


def targets_with_final_outcome(episode: Episode, progress: Array, progress_known: BoolArray | None = None) -> Targets:
    """Targets of a scheme that is told at the end whether it was a success, if anybody knows, and nothing before."""
    success, success_known = np.zeros((2, len(episode)), bool)
    success[-1], success_known[-1] = episode.success is True, episode.success is not None
    return _make_targets(progress, None, progress_known, success, success_known)


def _make_targets(
    progress: Array,
    subtask: IntArray | None,
    progress_known: BoolArray | None,
    success: BoolArray,
    success_known: BoolArray,
) -> Targets:
    return Targets(
        progress=progress,
        progress_known=np.ones(len(progress), bool) if progress_known is None else progress_known,
        subtask=np.full(len(progress), UNLABELED_SUBTASK) if subtask is None else subtask,
        success=success,
        success_known=success_known,
    )


def is_demonstration(episode: Episode) -> bool:
    """Whether the episode shows how the task is done: it is not known to have failed."""
    return episode.success is not False


def require_demonstration(episodes: Sequence[Episode], scheme: str) -> None:
    """Raises `DataError` when every episode is known to have failed."""
    if not any(map(is_demonstration, episodes)):
        raise DataError(
            f"labels {scheme!r} learn from successes, but the column success is false in all {len(episodes)} episodes; "
            "embodied-rm collect records successes"
        )


def require_outcome(episodes: Sequence[Episode], scheme: str) -> None:
    """Raises `DataError` when of no episode it is known whether it succeeded: nobody would say what "done" is."""
    if all(episode.success is None for episode in episodes):
        raise DataError(
            f"labels {scheme!r} are told the outcome of episodes, but the column success is missing in all "
            f"{len(episodes)}; embodied-rm collect records it"
        )
