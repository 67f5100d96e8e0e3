"""Step k and its elapsed share tau, on a scale of how long the steps take in the data.

Source: SARM (lerobot's `rewards/sarm`): progress = P[k-1] + share[k] * tau, tau = (t - start) / (end - start), share[k]
the mean share of step k over the demonstrations. Its windows that look ahead are not offered: they are not causal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embodied_rm.labels.piecewise_progress import (
    known_progress_mask,
    piecewise_progress,
    require_subtasks,
    subtask_spans,
)
from embodied_rm.labels.subtasks import subtask_indices, subtask_orders, task_of
from embodied_rm.labels.targets import Targets, is_demonstration, require_demonstration, targets_with_known_success
from embodied_rm.types import Array, Episode


def label(episodes: Sequence[Episode]) -> list[Targets]:
    """The targets of every episode; unknown inside a step that was not finished, as its end is.

    Raises `DataError` when there is no demonstration, or one has no annotated steps.
    """
    require_demonstration(episodes, "stages")
    require_subtasks(episodes, "stages")
    orders = subtask_orders(episodes)
    fractions_by_task = {
        task: mean_duration_fractions([e for e in episodes if task_of(e) == task], order)
        for task, order in orders.items()
    }
    return [_label_episode(e, orders.get(task_of(e), ()), fractions_by_task.get(task_of(e))) for e in episodes]


def _label_episode(episode: Episode, order: tuple[str, ...], fractions: Array | None) -> Targets:
    length = len(episode)
    subtask = subtask_indices(episode, order)
    if fractions is None or not episode.subtasks:
        return targets_with_known_success(episode, np.zeros(length, np.float32), subtask, np.zeros(length, bool))
    spans = subtask_spans(episode, order)
    progress = piecewise_progress(spans, [0, *np.cumsum(fractions[:-1]), 1], np.ones(length))
    return targets_with_known_success(episode, progress, subtask, known_progress_mask(spans, length))


def mean_duration_fractions(episodes: Sequence[Episode], order: Sequence[str]) -> Array | None:
    """float32 [K] that sum to 1: mean share of each step's frames over the demonstrations; None without any."""
    fractions = [
        duration_fractions(episode, order) for episode in episodes if is_demonstration(episode) and episode.subtasks
    ]
    return np.mean(fractions, axis=0).astype(np.float32) if fractions else None


def duration_fractions(episode: Episode, order: Sequence[str]) -> Array:
    """float32 [K] that sum to 1: the share of the annotated frames that each step takes."""
    frame_counts = np.zeros(len(order))
    for span in subtask_spans(episode, order):
        frame_counts[span.subtask] += span.end - span.start
    return (frame_counts / frame_counts.sum()).astype(np.float32)
