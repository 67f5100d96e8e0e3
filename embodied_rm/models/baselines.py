"""What a reward model must beat, and what it cannot: curves that look at no image, for the tables of `evaluate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from embodied_rm.types import Array, BoolArray

Baseline = Callable[[Array, BoolArray], tuple[Array, Array]]
"""True progress [T], and where the task is done, bool [T] -> progress and probability of "done" that the baseline gives
for that episode, float32 [T] each."""


def constant(true_progress: Array, done: BoolArray) -> tuple[Array, Array]:
    """Always one half."""
    half = np.full_like(true_progress, 0.5)
    return half, half


def elapsed_time(true_progress: Array, done: BoolArray) -> tuple[Array, Array]:
    """t / T: perfect order on every success, blind to failure. It knows the length beforehand, which is not causal."""
    time = np.linspace(0, 1, len(true_progress), dtype=np.float32)
    return time, time


def oracle(true_progress: Array, done: BoolArray) -> tuple[Array, Array]:
    """The truth itself: what the metrics give at best."""
    return true_progress, done.astype(np.float32)


BASELINES: Mapping[str, Baseline] = {"constant": constant, "time": elapsed_time, "oracle": oracle}
