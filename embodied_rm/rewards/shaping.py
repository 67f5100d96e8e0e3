"""Potential to reward: policy-invariant shaping (Ng, Harada and Russell 1999), once and for every caller.

The client of the reward service takes this file along, into a Python of its own: it imports nothing but numpy.

Raw progress paid as reward makes hovering near success worth more than success; a difference of potentials does not.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating]
BoolArray = npt.NDArray[np.bool_]


def shaped_reward(
    reward: npt.ArrayLike,
    phi: npt.ArrayLike,
    next_phi: npt.ArrayLike,
    terminated: npt.ArrayLike,
    gamma: float,
    n_steps: npt.ArrayLike = 1,
    scale: float = 1.0,
) -> FloatArray:
    """`reward + scale * (gamma**k * next_phi * (not terminated) - phi)`; the arrays broadcast.

    `next_phi` belongs to the true next state, before any reset. `terminated` is true at success and at failure, where
    the potential is 0 by definition; at a time limit it is false and the potential stays. `k` counts the steps really
    taken between the two states, `gamma` in (0, 1] is that of the learner. Grzes, AAMAS 2017, for the terminal rule.
    """
    discounted_next_phi = np.where(terminated, 0.0, np.power(gamma, n_steps) * np.asarray(next_phi))
    return np.asarray(reward) + scale * (discounted_next_phi - np.asarray(phi))


def hold_potential(phi: npt.ArrayLike, scored_phi: npt.ArrayLike, scored: BoolArray) -> FloatArray:
    """The potential after one step: the new score where there is one, else the old one, held.

    Between two scores the held number is part of the state, so the per-step rewards with k = 1 are potential-based
    too: over a chunk of k steps they add up, discounted to its start, to gamma**k * Phi' - Phi.
    """
    return np.where(scored, scored_phi, phi)


def potential_lower_bound(
    progress: npt.ArrayLike, uncertainty: npt.ArrayLike, uncertainty_penalty: float
) -> FloatArray:
    """A prediction's progress, less so many of its spreads: what the model doubts is worth less. In [0, 1]."""
    return np.clip(np.asarray(progress) - uncertainty_penalty * np.asarray(uncertainty), 0, 1)


def update_success_streak(
    streak: npt.ArrayLike, is_success: npt.ArrayLike, valid: npt.ArrayLike
) -> npt.NDArray[np.int64]:
    """How many verdicts "done" there are without a break, after another one. An unscored frame is no verdict: it
    neither continues the row nor breaks it."""
    return np.where(valid, np.where(is_success, np.asarray(streak) + 1, 0), streak)
