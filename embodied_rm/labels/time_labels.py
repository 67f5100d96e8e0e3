"""Elapsed time t / T as progress, on successes and failures: a baseline."""

from collections.abc import Sequence

import numpy as np

from embodied_rm.labels.targets import Targets, require_outcome, targets_with_final_outcome
from embodied_rm.types import Array, Episode


def label(episodes: Sequence[Episode]) -> list[Targets]:
    """Return the targets per episode, from its length and outcome; `DataError` if no episode has an outcome."""
    require_outcome(episodes, "time")
    return [targets_with_final_outcome(episode, linear_progress(len(episode))) for episode in episodes]


def linear_progress(length: int) -> Array:
    """Return progress that rises linearly from 0 to 1, float32 [length]."""
    return np.linspace(0, 1, length, dtype=np.float32)
