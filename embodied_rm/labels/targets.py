"""Training targets of episodes, and the source of their success labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from embodied_rm.errors import DataError, UserError
from embodied_rm.labels.subtasks import UNLABELED_SUBTASK
from embodied_rm.types import Array, BoolArray, Episode, IntArray

SUCCESS_SETTLE_TIME_S = 0.2
"""Seconds for which a task must stay done before success is a training target."""


@dataclass(frozen=True, kw_only=True)
class Targets:
    """Targets of the T frames of an episode, or of [B, M] frames of a batch."""

    progress: Array
    """float32 in [0, 1]."""
    progress_known: BoolArray
    """Whether `progress` is a target there."""
    subtask: IntArray
    """Index of the current subtask, int64; `UNLABELED_SUBTASK` if unknown."""
    success: BoolArray
    """Whether the task is done."""
    success_known: BoolArray
    """Whether `success` is a target there."""

    def take(self, indices: IntArray) -> Targets:
        """Return the targets of some frames."""
        return Targets(**{name: values[indices] for name, values in vars(self).items()})


def stack_targets(items: Sequence[Targets]) -> Targets:
    """Stack targets [M] of B episodes to targets [B, M]."""
    return Targets(**{name: np.stack([getattr(item, name) for item in items]) for name in vars(items[0])})


def settled_success_mask(success: BoolArray, settle_frames: int) -> BoolArray:
    """Return where success, bool [T], is a reliable target: where it is false or settled, and at the last frame.

    A new success may be lost again. A model that is trained on those frames predicts success at the boundary, in half
    of the cases before it. Without them, its boundary falls inside the success.
    """
    success_start = np.maximum.accumulate(np.where(success, -1, np.arange(len(success)))) + 1
    mask = ~success | (np.arange(len(success)) - success_start >= settle_frames)
    mask[-1] = True
    return mask


def targets_with_known_success(
    episode: Episode, progress: Array, subtask: IntArray | None = None, progress_known: BoolArray | None = None
) -> Targets:
    """Return targets of a scheme that knows when the task is done: where `progress` [T] is 1.

    At the last frame the recorded outcome decides, because a success that began there may not count yet.
    """
    success = progress >= 1
    success[-1] = success[-1] if episode.success is None else episode.success
    success_known = settled_success_mask(success, round(SUCCESS_SETTLE_TIME_S * episode.fps))
    return make_targets(progress, subtask, progress_known, success, success_known)


def targets_with_final_outcome(episode: Episode, progress: Array, progress_known: BoolArray | None = None) -> Targets:
    """Return targets of a scheme that knows the outcome only: success is known at the last frame, if recorded."""
    return make_targets(progress, None, progress_known, *final_outcome(episode))


def outcome_targets(episode: Episode, subtask: IntArray | None = None) -> Targets:
    """Return targets of unknown progress: the outcome at the last frame, if recorded, and subtasks if there are any."""
    zeros, unknown = np.zeros(len(episode), np.float32), np.zeros(len(episode), bool)
    return make_targets(zeros, subtask, unknown, *final_outcome(episode))


def final_outcome(episode: Episode) -> tuple[BoolArray, BoolArray]:
    """Return (task is done, outcome is known), bool [T] each, which are False before the last frame."""
    success, known = np.zeros((2, len(episode)), bool)
    success[-1], known[-1] = episode.success is True, episode.success is not None
    return success, known


def make_targets(
    progress: Array,
    subtask: IntArray | None,
    progress_known: BoolArray | None,
    success: BoolArray,
    success_known: BoolArray,
) -> Targets:
    """Return targets; None: no labeled subtask, or progress known at every frame."""
    return Targets(
        progress=progress,
        progress_known=np.ones(len(progress), bool) if progress_known is None else progress_known,
        subtask=np.full(len(progress), UNLABELED_SUBTASK) if subtask is None else subtask,
        success=success,
        success_known=success_known,
    )


def is_demonstration(episode: Episode) -> bool:
    """Return whether the episode is a demonstration: it is not known to have failed."""
    return episode.success is not False


def check_demonstration(episode: Episode) -> None:
    """Raise `UserError` unless the episode is a demonstration."""
    if not is_demonstration(episode):
        raise UserError(f"{episode.name}: a demonstration must succeed; this one is marked as failed")


def require_demonstration(episodes: Sequence[Episode], scheme: str) -> None:
    """Raise `DataError` if every episode is known to have failed."""
    if not any(map(is_demonstration, episodes)):
        raise DataError(
            f"label scheme {scheme!r} needs successes, but the column success is false in all {len(episodes)} "
            "episodes; record or mark successes (embodied-rm annotate)"
        )


def require_outcome(episodes: Sequence[Episode], scheme: str) -> None:
    """Raise `DataError` if the outcome of no episode is known: nothing would define success."""
    if all(episode.success is None for episode in episodes):
        raise DataError(
            f"label scheme {scheme!r} needs outcomes, but the column success is missing in all {len(episodes)} "
            "episodes; embodied-rm annotate marks it"
        )
