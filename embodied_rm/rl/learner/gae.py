"""Generalized advantage estimation (pure), with separate masks for terminated, ended and invalid steps."""

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
    """Return advantages [T, N] (Schulman et al., arXiv 1506.02438, eq. 16); every array is [T, N].

    Args:
        reward: Rewards.
        value: Values of the observations.
        next_value: Values of the true next observations, before any reset.
        terminated: Whether the next value is 0.
        done: Whether the episode ended (terminated or truncated). It cuts the trace; a time limit still bootstraps.
        valid: Whether a transition counts. An invalid one has advantage 0, its numbers are not read, and no trace
            crosses it.
        gamma: Discount, in (0, 1].
        lam: Decay of the trace, in [0, 1].
    """
    delta = reward + gamma * np.where(terminated, 0.0, next_value) - value
    advantage = np.zeros_like(delta)
    trace = np.zeros(delta.shape[1:], delta.dtype)
    for t in reversed(range(len(delta))):
        trace = np.where(valid[t], delta[t] + gamma * lam * np.where(done[t], 0.0, trace), 0.0)
        advantage[t] = trace
    return advantage
