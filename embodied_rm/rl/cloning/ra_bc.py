"""Weights of demonstration frames by the progress that follows them (pure).

Source: the reward-aligned behavior cloning (RA-BC) of SARM.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embodied_rm.types import Array

FULL_WEIGHT_GAIN = 0.01
"""Gain of progress above which a frame has weight 1 (kappa)."""
EPSILON = 1e-8


def progress_gains(progress: Array, horizon: int) -> Array:
    """Return the gain of progress over the next `horizon` frames, float32 [T]; fewer frames at the end."""
    future = np.minimum(np.arange(len(progress)) + horizon, len(progress) - 1)
    return progress[future] - progress


def progress_weights(curves: Sequence[Array], horizon: int) -> list[Array]:
    """Return the weights of each episode, float32 [T] in [0, 1], from its progress according to a reward model.

    The weight is 1 for a gain above `FULL_WEIGHT_GAIN`, and 0 for a loss of progress. In between it is
    clip((gain - (mean - 2 std)) / 4 std, 0, 1), with mean and standard deviation of all gains.
    """
    episode_gains = [progress_gains(curve, horizon) for curve in curves]
    all_gains = np.concatenate(episode_gains)
    mean, std = float(all_gains.mean()), float(all_gains.std())

    def weight(gain: Array) -> Array:
        ramp = np.clip((gain - (mean - 2 * std)) / (4 * std + EPSILON), 0, 1)
        return np.where(gain > FULL_WEIGHT_GAIN, 1, np.where(gain >= 0, ramp, 0)).astype(np.float32)

    return [weight(gain) for gain in episode_gains]
