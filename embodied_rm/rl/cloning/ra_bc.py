"""Which moments of demonstrations deserve to be imitated: those after which a reward model sees progress (pure).

Source: SARM's reward-aligned behaviour cloning (RA-BC).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embodied_rm.types import Array

FULL_WEIGHT_GAIN = 0.01
"""Gain of progress from which a moment counts fully (kappa)."""
EPSILON = 1e-8


def progress_gains(progress: Array, horizon: int) -> Array:
    """float32 [T]: the progress made within `horizon` frames of each, fewer at the end, where it stands still."""
    future = np.minimum(np.arange(len(progress)) + horizon, len(progress) - 1)
    return progress[future] - progress


def progress_weights(curves: Sequence[Array], horizon: int) -> list[Array]:
    """float32 [T] in [0, 1] for each episode, from the progress that a reward model saw.

    1 where more than `SURE` is gained, 0 where progress is lost, and in between clip((gain - (mean - 2 std)) / 4 std),
    mean and standard deviation being those of all gains.
    """
    episode_gains = [progress_gains(curve, horizon) for curve in curves]
    all_gains = np.concatenate(episode_gains)
    mean, std = float(all_gains.mean()), float(all_gains.std())

    def weight(gain: Array) -> Array:
        ramp = np.clip((gain - (mean - 2 * std)) / (4 * std + EPSILON), 0, 1)
        return np.where(gain > FULL_WEIGHT_GAIN, 1, np.where(gain >= 0, ramp, 0)).astype(np.float32)

    return [weight(gain) for gain in episode_gains]
