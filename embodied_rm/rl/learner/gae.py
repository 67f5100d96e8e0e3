"""Generalised advantage estimation: a pure formula with one mask for each thing that can end."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from embodied_rm.types import BoolArray

FloatArray = npt.NDArray[np.floating]


def gae(
    reward: FloatArray,
    value: FloatArray,
    next_value: FloatArray,
    terminated: BoolArray,
    done: BoolArray,
    valid: BoolArray,
    gamma: float,
    lam: float,
) -> FloatArray:
    """Advantages [T, N] (Schulman et al., arXiv 1506.02438, eq. 16); every array is [T, N].

    `next_value` is V of the true next observation, before any reset. `terminated` cuts the value that follows; `done`
    (terminated or truncated) cuts the trace, so that a time limit still bootstraps. A transition that is not `valid`
    contributes nothing: its advantage is 0, its numbers are never read, and no trace crosses it.
    """
    delta = reward + gamma * np.where(terminated, 0.0, next_value) - value
    advantage = np.zeros_like(delta)
    trace = np.zeros(delta.shape[1:], delta.dtype)
    for t in reversed(range(len(delta))):
        trace = np.where(valid[t], delta[t] + gamma * lam * np.where(done[t], 0.0, trace), 0.0)
        advantage[t] = trace
    return advantage
