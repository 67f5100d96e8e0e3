"""t / T: the baseline that calls the passing of time progress, on successes and failures alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embodied_rm.labels.targets import Targets, require_outcome, targets_with_final_outcome
from embodied_rm.types import Array, Episode


def label(episodes: Sequence[Episode]) -> list[Targets]:
    """The targets of every episode; nothing is needed but its length and outcome.

    Raises `DataError` without outcomes.
    """
    require_outcome(episodes, "clock")
    return [targets_with_final_outcome(episode, linear_progress(len(episode))) for episode in episodes]


def linear_progress(length: int) -> Array:
    """float32 [length] from 0 to 1."""
    return np.linspace(0, 1, length, dtype=np.float32)
