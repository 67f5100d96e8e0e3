"""What a labelling scheme says of an episode, and where its verdict "done" comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from embodied_rm.errors import DataError
from embodied_rm.labels.steps import UNLABELLED
from embodied_rm.types import Array, BoolArray, Episode, IntArray

SETTLING = 0.2
"""Seconds for which a task must have been done before that is taught as "done"."""


@dataclass(frozen=True, kw_only=True)
class Targets:
    """What a scheme believes: of the T frames of an episode, or of [B, M] moments of a batch."""

    progress: Array
    """float32 in [0, 1]."""
    known: BoolArray
    """Whether the scheme says anything about `progress` there."""
    step: IntArray
    """int64: step under way; `UNLABELLED` where the scheme names none."""
    done: BoolArray
    """Whether the task is done."""
    done_known: BoolArray
    """Whether `done` is to be learned."""

    def at(self, moments: IntArray) -> Targets:
        """The same of some frames."""
        return Targets(**{name: column[moments] for name, column in vars(self).items()})


def stacked(rows: Sequence[Targets]) -> Targets:
    """Targets [M] of B episodes as targets [B, M]."""
    return Targets(**{name: np.stack([getattr(row, name) for row in rows]) for name in vars(rows[0])})


def settled(done: BoolArray, frames: int) -> BoolArray:
    """Where `done` [T] is beyond doubt, bool [T]: where it is false, from `frames` frames on after it came true, and
    at the last frame.

    What has only just come true may be lost again. A model that is told to say "done" there says so at the very edge
    of success, half the time before it; left open, the edge of its verdict falls inside.
    """
    begun = np.maximum.accumulate(np.where(done, -1, np.arange(len(done)))) + 1
    known = ~done | (np.arange(len(done)) - begun >= frames)
    known[-1] = True
    return known


def watched(episode: Episode, progress: Array, step: IntArray | None = None, known: BoolArray | None = None) -> Targets:
    """Targets of a scheme that sees when the task is done: where `progress` [T] is 1.

    At the last frame the recorded outcome decides: what has only just come true when a film ends may not count yet.
    """
    done = progress >= 1
    done[-1] = done[-1] if episode.success is None else episode.success
    done_known = settled(done, round(SETTLING * episode.fps))
    return _targets(progress, step, known, done, done_known)


def outcome_only(episode: Episode, progress: Array, known: BoolArray | None = None) -> Targets:
    """Targets of a scheme that is told at the end whether it was a success, if anybody knows, and nothing before."""
    done, done_known = np.zeros((2, len(episode)), bool)
    done[-1], done_known[-1] = episode.success is True, episode.success is not None
    return _targets(progress, None, known, done, done_known)


def _targets(
    progress: Array, step: IntArray | None, known: BoolArray | None, done: BoolArray, done_known: BoolArray
) -> Targets:
    return Targets(
        progress=progress,
        known=np.ones(len(progress), bool) if known is None else known,
        step=np.full(len(progress), UNLABELLED) if step is None else step,
        done=done,
        done_known=done_known,
    )


def demonstrates(episode: Episode) -> bool:
    """Whether the episode shows how the task is done: it is not known to have failed."""
    return episode.success is not False


def need_demonstration(episodes: Sequence[Episode], scheme: str) -> None:
    """Raises `DataError` when every episode is known to have failed."""
    if not any(map(demonstrates, episodes)):
        raise DataError(
            f"labels {scheme!r} learn from successes, but the column success is false in all {len(episodes)} episodes; "
            "embodied-rm collect records successes"
        )


def need_outcome(episodes: Sequence[Episode], scheme: str) -> None:
    """Raises `DataError` when of no episode it is known whether it succeeded: nobody would say what "done" is."""
    if all(episode.success is None for episode in episodes):
        raise DataError(
            f"labels {scheme!r} are told the outcome of episodes, but the column success is missing in all "
            f"{len(episodes)}; embodied-rm collect records it"
        )
