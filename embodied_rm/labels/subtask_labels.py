"""Subtask index and elapsed time within the subtask, scaled by the mean subtask durations (scheme `stages`).

Source: SARM (lerobot's `rewards/sarm`): progress = P[k-1] + fraction[k] * tau with tau = (t - start) / (end - start).
fraction[k] is the mean duration fraction of subtask k over the demonstrations. SARM's look-ahead windows are left out:
they are not causal.
"""

from collections.abc import Sequence

import numpy as np

from embodied_rm.labels.piecewise_progress import (
    known_progress_mask,
    piecewise_progress,
    require_subtasks,
    subtask_frame_counts,
    subtask_spans,
)
from embodied_rm.labels.subtasks import subtask_indices, subtask_orders, task_of
from embodied_rm.labels.targets import (
    Targets,
    is_demonstration,
    outcome_targets,
    require_demonstration,
    targets_with_known_success,
)
from embodied_rm.types import Array, Episode


def label(episodes: Sequence[Episode]) -> list[Targets]:
    """Return the targets per episode. Progress inside an unfinished subtask is unknown.

    `DataError` if there is no demonstration with annotated subtasks. One without them counts for its outcome.
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
    if is_demonstration(episode) and not episode.subtasks:
        return outcome_targets(episode)
    if fractions is None or not episode.subtasks:
        return targets_with_known_success(episode, np.zeros(length, np.float32), subtask, np.zeros(length, bool))
    spans = subtask_spans(episode, order)
    progress = piecewise_progress(spans, [0, *np.cumsum(fractions[:-1]), 1], np.ones(length))
    return targets_with_known_success(episode, progress, subtask, known_progress_mask(spans, length))


def mean_duration_fractions(episodes: Sequence[Episode], order: Sequence[str]) -> Array | None:
    """Return the mean duration fraction per subtask over the demonstrations, float32 [K], sum 1; None without any."""
    fractions = [duration_fractions(e, order) for e in episodes if is_demonstration(e) and e.subtasks]
    return np.mean(fractions, axis=0).astype(np.float32) if fractions else None


def duration_fractions(episode: Episode, order: Sequence[str]) -> Array:
    """Return the fraction of the annotated frames per subtask, float32 [K], sum 1."""
    frame_counts = subtask_frame_counts(subtask_spans(episode, order), len(order))
    return (frame_counts / frame_counts.sum()).astype(np.float32)
