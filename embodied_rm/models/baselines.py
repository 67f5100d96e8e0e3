"""What a reward model must beat, and what it cannot: curves that look at no picture, for the tables of `evaluate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from embodied_rm.types import Array, BoolArray

Baseline = Callable[[Array, BoolArray], tuple[Array, Array]]
"""True progress [T], and where the task is done, bool [T] -> progress and probability of "done" that the baseline gives
for that episode, float32 [T] each."""


def constant(truth: Array, done: BoolArray) -> tuple[Array, Array]:
    """Always one half."""
    half = np.full_like(truth, 0.5)
    return half, half


def clock(truth: Array, done: BoolArray) -> tuple[Array, Array]:
    """t / T: perfect order on every success, blind to failure. It knows the length beforehand, which is not causal."""
    time = np.linspace(0, 1, len(truth), dtype=np.float32)
    return time, time


def oracle(truth: Array, done: BoolArray) -> tuple[Array, Array]:
    """The truth itself: what the metrics give at best."""
    return truth, done.astype(np.float32)


BASELINES: Mapping[str, Baseline] = {"constant": constant, "clock": clock, "oracle": oracle}
