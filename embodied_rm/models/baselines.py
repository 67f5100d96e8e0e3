"""What a reward model must beat, and what it cannot: curves that look at no picture, for the tables of `evaluate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from embodied_rm.types import Array

Baseline = Callable[[Array], Array]
"""True progress [T] -> the curve that the baseline gives for that episode, float32 [T]."""


def constant(truth: Array) -> Array:
    """Always one half."""
    return np.full_like(truth, 0.5)


def clock(truth: Array) -> Array:
    """t / T: perfect order on every success, blind to failure. It knows the length beforehand, which is not causal."""
    return np.linspace(0, 1, len(truth), dtype=np.float32)


def oracle(truth: Array) -> Array:
    """The truth itself: what the metrics give at best."""
    return truth


BASELINES: Mapping[str, Baseline] = {"constant": constant, "clock": clock, "oracle": oracle}
