"""Which moments of an episode a training batch shows. All ordered pairs among them are supervised."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from embodied_rm.types import Array, IntArray

ADJACENT_FRACTION = 0.4
"""Share of the moments that lie close to another one: the small hops that scoring every frame needs."""
MAX_ADJACENT_OFFSET_FRAMES = 8
"""Farthest that a neighbor lies from its moment, frames."""


def sample_frames(progress: Array, count: int, rng: np.random.Generator) -> IntArray:
    """int64 [count] frames of an episode with true progress [T]: the first, the last, and `count - 2` others.

    The others are spread evenly over time and over progress, half and half, so that hops of every size and gap occur,
    stalls (hops of 0) too; a share of them are neighbors of these. Pairs are taken both ways, so every hop is seen
    backwards as well. Stratification after Robo-Dopamine's 25 hop by 4 gap bins.
    """
    assert count >= 3
    last, num_others = len(progress) - 1, count - 2
    num_adjacent = int(num_others * ADJACENT_FRACTION)
    num_stratified = num_others - num_adjacent
    by_time = rng.integers(0, last + 1, size=(num_stratified + 1) // 2)
    progress_targets = rng.uniform(progress.min(), progress.max(), size=num_stratified // 2)
    by_progress = _nearest_frames(progress, progress_targets, rng)
    frames = np.concatenate([[0, last], by_time, by_progress])
    offset = rng.integers(1, MAX_ADJACENT_OFFSET_FRAMES + 1, size=num_adjacent) * rng.choice([-1, 1], size=num_adjacent)
    return np.concatenate([frames, np.clip(rng.choice(frames, size=num_adjacent) + offset, 0, last)])


def _nearest_frames(progress: Array, progress_targets: npt.NDArray[np.float64], rng: np.random.Generator) -> IntArray:
    """For each wanted progress a frame that comes closest to it, any of them where several do (a stall)."""
    distance = np.abs(progress[None] - progress_targets[:, None])
    tie_break = 1e-3 * rng.random(distance.shape)
    return np.argmin(distance + tie_break, axis=1)
