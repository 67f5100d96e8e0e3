"""The true progress of an episode: recorded, or from its annotated subtasks; and targets where it is unknown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from embodied_rm.errors import DataError
from embodied_rm.labels.targets import Targets, outcome_targets
from embodied_rm.types import Array, Episode, IntArray, Subtask

NO_PROGRESS = "neither annotated subtasks nor progress"


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


def progress_or_none(episode: Episode) -> Array | None:
    """Return the recorded progress, else that of the annotated subtasks of a success; float32 [T] in [0, 1].

    None if the episode has neither. Subtasks of a failure do not determine how many were left.
    """
    if episode.progress is not None:
        return episode.progress
    if episode.subtasks and episode.success is not False:
        return progress_from_subtasks(episode.subtasks, len(episode))
    return None


def true_progress(episode: Episode) -> Array:
    """Return the true progress, float32 [T] in [0, 1]. `DataError` if it is unknown, see `progress_or_none`."""
    progress = progress_or_none(episode)
    if progress is None:
        reason = "a failure without a progress column" if episode.subtasks else NO_PROGRESS
        raise DataError(f"{episode.name}: {reason}; embodied-rm annotate marks the subtasks of a success")
    return progress


def label_true_progress(
    episodes: Sequence[Episode],
    targets_of: Callable[[Episode, Array, IntArray | None], Targets],
    subtasks: Sequence[IntArray] | None = None,
) -> list[Targets]:
    """Return the targets per episode; where the true progress is unknown, the outcome at the last frame is one.

    Args:
        episodes: The episodes.
        targets_of: Function from an episode, its true progress and its subtask indices to its targets.
        subtasks: Subtask indices int64 [T] per episode; None: no scheme of subtasks.
    """
    indices: Sequence[IntArray | None] = [None] * len(episodes) if subtasks is None else subtasks
    known = [(progress_or_none(episode), subtask) for episode, subtask in zip(episodes, indices, strict=True)]
    return [
        outcome_targets(episode, subtask) if progress is None else targets_of(episode, progress, subtask)
        for episode, (progress, subtask) in zip(episodes, known, strict=True)
    ]


def require_true_progress(episodes: Sequence[Episode], scheme: str) -> None:
    """Raise `DataError` if the true progress of every episode is unknown: nothing would teach progress."""
    if all(progress_or_none(episode) is None for episode in episodes):
        raise DataError(
            f"label scheme {scheme!r} needs true progress: {NO_PROGRESS} in all {len(episodes)} episodes. Mark the "
            "subtasks of successes with embodied-rm annotate, or use a scheme that needs the outcome only: "
            "label_schemes=[rewind]"
        )
