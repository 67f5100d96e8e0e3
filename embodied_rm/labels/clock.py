"""t / T: the baseline that calls the passing of time progress, on successes and failures alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embodied_rm.labels.targets import Targets, need_outcome, outcome_only
from embodied_rm.types import Array, Episode


def label(episodes: Sequence[Episode]) -> list[Targets]:
    """The targets of every episode; nothing is needed but its length and outcome.

    Raises `DataError` without outcomes.
    """
    need_outcome(episodes, "clock")
    return [outcome_only(episode, clock(len(episode))) for episode in episodes]


def clock(length: int) -> Array:
    """float32 [length] from 0 to 1."""
    return np.linspace(0, 1, length, dtype=np.float32)
