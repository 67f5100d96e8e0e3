"""Which moments of an episode a training batch shows. All ordered pairs among them are supervised."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from embodied_rm.types import Array, IntArray

NEIGHBOURS = 0.4
"""Share of the moments that lie close to another one: the small hops that scoring every frame needs."""
REACH = 8
"""Farthest that a neighbour lies from its moment, frames."""


def sample_moments(progress: Array, count: int, rng: np.random.Generator) -> IntArray:
    """int64 [count] frames of an episode with true progress [T]: the first, the last, and `count - 2` others.

    The others are spread evenly over time and over progress, half and half, so that hops of every size and gap occur,
    stalls (hops of 0) too; a share of them are neighbours of these. Pairs are taken both ways, so every hop is seen
    backwards as well. Stratification after Robo-Dopamine's 25 hop by 4 gap bins.
    """
    assert count >= 3
    last, others = len(progress) - 1, count - 2
    near = int(others * NEIGHBOURS)
    spread = others - near
    in_time = rng.integers(0, last + 1, size=(spread + 1) // 2)
    wanted = rng.uniform(progress.min(), progress.max(), size=spread // 2)
    by_progress = _nearest(progress, wanted, rng)
    moments = np.concatenate([[0, last], in_time, by_progress])
    offset = rng.integers(1, REACH + 1, size=near) * rng.choice([-1, 1], size=near)
    return np.concatenate([moments, np.clip(rng.choice(moments, size=near) + offset, 0, last)])


def _nearest(progress: Array, wanted: npt.NDArray[np.float64], rng: np.random.Generator) -> IntArray:
    """For each wanted progress a frame that comes closest to it, any of them where several do (a stall)."""
    distance = np.abs(progress[None] - wanted[:, None])
    tie = 1e-3 * rng.random(distance.shape)
    return np.argmin(distance + tie, axis=1)
