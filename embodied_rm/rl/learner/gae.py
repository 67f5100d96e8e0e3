"""Generalized advantage estimation (pure), with separate masks for terminated, ended and invalid steps."""

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

    Next values are those of the true next observations, before any reset; where `terminated`, they are 0. `done` (also
    by a time limit, which still bootstraps) cuts the trace. An invalid transition has advantage 0, its numbers are not
    read, and no trace crosses it.
    """
    delta = reward + gamma * np.where(terminated, 0.0, next_value) - value
    advantage = np.zeros_like(delta)
    trace = np.zeros(delta.shape[1:], delta.dtype)
    for t in reversed(range(len(delta))):
        trace = np.where(valid[t], delta[t] + gamma * lam * np.where(done[t], 0.0, trace), 0.0)
        advantage[t] = trace
    return advantage
