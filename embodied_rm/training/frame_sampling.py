"""Sampling of the frames of an episode for a training batch. All ordered pairs of them are supervised."""

import numpy as np
import numpy.typing as npt

from embodied_rm.types import Array, IntArray

ADJACENT_FRACTION = 0.4  # fraction of frames close to another one: scoring every frame needs small hops
MAX_ADJACENT_OFFSET_FRAMES = 8  # largest distance of such a frame, in frames


def sample_frames(progress: Array, count: int, rng: np.random.Generator) -> IntArray:
    """Sample frames of an episode with progress [T]: the first, the last and `count - 2` others; int64 [count].

    Half of the others are uniform in time and half in progress, so hops of all sizes and gaps occur, also hops of 0. A
    fraction `ADJACENT_FRACTION` is close to another frame. Follows Robo-Dopamine's 25 hop by 4 gap bins.
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
    """Return the frame closest to each progress target, a random one of several (a stall)."""
    distance = np.abs(progress[None] - progress_targets[:, None])
    tie_break = 1e-3 * rng.random(distance.shape)
    return np.argmin(distance + tie_break, axis=1)
