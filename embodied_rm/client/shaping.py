"""From a potential to a reward: policy-invariant shaping (Ng, Harada and Russell 1999).

With raw progress as the reward, hovering near success is worth more than success. With a difference of potentials, it
is not.
"""

from __future__ import annotations

from typing import Optional

import numpy as np
import numpy.typing as npt

DEFAULT_SUCCESS_THRESHOLD = 0.5
"""Success probability from which a frame counts as done, for a model without a fitted one."""
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
    """Return `reward + scale * (gamma**n_steps * next_phi * (not terminated) - phi)`; the arrays broadcast.

    Args:
        reward: Rewards of the task.
        phi: Potentials before the step, in [0, 1].
        next_phi: Potentials of the true next states, before any reset.
        terminated: Whether the episode ended in success or failure: the potential is 0 there (Grzes, AAMAS 2017).
            At a time limit it is false, and the potential stays.
        gamma: Discount of the learner, in (0, 1].
        n_steps: Steps between the two states.
        scale: Weight of the shaping.
    """
    discounted_next_phi = np.where(terminated, 0.0, np.power(gamma, n_steps) * np.asarray(next_phi))
    return np.asarray(reward) + scale * (discounted_next_phi - np.asarray(phi))


def hold_potential(phi: npt.ArrayLike, scored_phi: npt.ArrayLike, scored: BoolArray) -> FloatArray:
    """Return the potential after one step: the new score if there is one, else the old potential.

    The held potential is part of the state, so rewards per step are potential-based too. Over k steps they sum to
    gamma**k * Phi' - Phi, discounted to the first step.
    """
    return np.where(scored, scored_phi, phi)


def potential_lower_bound(
    progress: npt.ArrayLike, uncertainty: npt.ArrayLike, uncertainty_penalty: float
) -> FloatArray:
    """Return the progress minus `uncertainty_penalty` times its uncertainty, clipped to [0, 1]."""
    return np.clip(np.asarray(progress) - uncertainty_penalty * np.asarray(uncertainty), 0, 1)


def select_success_threshold(setting: Optional[float], fitted: Optional[float]) -> float:
    """Return the success probability from which a frame counts as done: that of the user, else of the model, else 0.5.

    `fitted`: the threshold that `embodied-rm calibrate` stored in the model; None: it stored none.
    """
    chosen = fitted if setting is None else setting
    return DEFAULT_SUCCESS_THRESHOLD if chosen is None else chosen


def update_success_streak(
    streak: npt.ArrayLike, is_success: npt.ArrayLike, valid: npt.ArrayLike
) -> npt.NDArray[np.int64]:
    """Return the number of consecutive predicted successes after one more prediction.

    A frame without a valid prediction neither continues nor breaks the streak.
    """
    return np.where(valid, np.where(is_success, np.asarray(streak) + 1, 0), streak)
