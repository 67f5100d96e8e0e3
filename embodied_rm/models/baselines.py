"""Baselines of the `evaluate` tables that use no image: a constant, the elapsed time and the true progress."""

from collections.abc import Callable, Mapping

import numpy as np

from embodied_rm.types import Array, BoolArray

Baseline = Callable[[Array, BoolArray], tuple[Array, Array]]
"""(true progress [T], success bool [T]) -> (progress, success probability), float32 [T] each."""


def constant(true_progress: Array, done: BoolArray) -> tuple[Array, Array]:
    """One half at every frame."""
    half = np.full_like(true_progress, 0.5)
    return half, half


def elapsed_time(true_progress: Array, done: BoolArray) -> tuple[Array, Array]:
    """t / T: perfect order on every success, the same on failures. Not causal: it uses the episode's length."""
    time = np.linspace(0, 1, len(true_progress), dtype=np.float32)
    return time, time


def oracle(true_progress: Array, done: BoolArray) -> tuple[Array, Array]:
    """The true values: the best score that each metric permits."""
    return true_progress, done.astype(np.float32)


BASELINES: Mapping[str, Baseline] = {"constant": constant, "time": elapsed_time, "oracle": oracle}
