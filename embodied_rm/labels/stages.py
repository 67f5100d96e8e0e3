"""Step k and its elapsed share tau, on a scale of how long the steps take in the data.

Source: SARM (lerobot's `rewards/sarm`): progress = P[k-1] + share[k] * tau, tau = (t - start) / (end - start), share[k]
the mean share of step k over the demonstrations. Its windows that look ahead are not offered: they are not causal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embodied_rm.labels.climb import climb, need_steps, segments, understood
from embodied_rm.labels.steps import step_indices, step_orders, task_of
from embodied_rm.labels.targets import Targets, demonstrates, need_demonstration, watched
from embodied_rm.types import Array, Episode


def label(episodes: Sequence[Episode]) -> list[Targets]:
    """The targets of every episode; unknown inside a step that was not finished, as its end is.

    Raises `DataError` when there is no demonstration, or one has no annotated steps.
    """
    need_demonstration(episodes, "stages")
    need_steps(episodes, "stages")
    orders = step_orders(episodes)
    shares = {task: mean_shares([e for e in episodes if task_of(e) == task], order) for task, order in orders.items()}
    return [_labelled(e, orders.get(task_of(e), ()), shares.get(task_of(e))) for e in episodes]


def _labelled(episode: Episode, order: tuple[str, ...], shares: Array | None) -> Targets:
    length = len(episode)
    step = step_indices(episode, order)
    if shares is None or not episode.steps:
        return watched(episode, np.zeros(length, np.float32), step, np.zeros(length, bool))
    parts = segments(episode, order)
    progress = climb(parts, [0, *np.cumsum(shares[:-1]), 1], np.ones(length))
    return watched(episode, progress, step, understood(parts, length))


def mean_shares(episodes: Sequence[Episode], order: Sequence[str]) -> Array | None:
    """float32 [K] that sum to 1: mean share of each step's frames over the demonstrations; None without any."""
    shown = [shares(episode, order) for episode in episodes if demonstrates(episode) and episode.steps]
    return np.mean(shown, axis=0).astype(np.float32) if shown else None


def shares(episode: Episode, order: Sequence[str]) -> Array:
    """float32 [K] that sum to 1: the share of the annotated frames that each step takes."""
    frames = np.zeros(len(order))
    for part in segments(episode, order):
        frames[part.step] += part.end - part.start
    return (frames / frames.sum()).astype(np.float32)
