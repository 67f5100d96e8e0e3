"""A step costs one until success; shaped by the time that is left.

Source: RynnValue (`apply_reward_shaping`): r + kappa (gamma Phi' - Phi) with Phi the negative remaining time, and -Phi
alone at success. As there, an episode that ends in failure counts as going on. The remaining time is the share of the
limit that is left to do.
"""

from __future__ import annotations

import numpy as np

from embodied_rm.rewards.transitions import FloatArray, RewardParams, Transitions

SHAPING_COEF = 0.1


def compute_reward(transitions: Transitions, params: RewardParams) -> FloatArray:
    """-1, 0 at success, + kappa (gamma Phi' (not achieved) - Phi), Phi = -(1 - progress) limit. `scale` is kappa's."""
    assert params.max_episode_steps is not None
    remaining, next_remaining = (
        (1 - phi) * params.max_episode_steps for phi in (transitions.potential, transitions.next_potential)
    )
    shaping = remaining - np.where(transitions.is_success, 0.0, params.gamma * next_remaining)
    return np.where(transitions.is_success, 0.0, -1.0) + params.scale * SHAPING_COEF * shaping
