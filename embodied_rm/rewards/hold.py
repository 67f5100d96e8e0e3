"""Mean of contrast, progress and completion, held between two scores, and nothing of the task.

Source: Large Reward Models (tri: `vlm_pure_reward`, `vlm_non_call_reward_mode: hold`). It pays for every step: the end
of an episode is the end of its income.
"""

from __future__ import annotations

import numpy as np

from embodied_rm.rewards.transitions import FloatArray, RewardParams, Transitions

SUCCESS_THRESHOLD = 0.5
"""Probability of success from which an episode counts as complete."""
MIN_PROGRESS_CHANGE = 0.01
"""Change of progress up to which two moments are equally close to the goal."""


def compute_reward(transitions: Transitions, params: RewardParams) -> FloatArray:
    """scale ((c + 1) / 2 + Phi' + d) / 3: c in {-1, 0, 1} the sign of the last change, d in {0, 1} whether it is
    done."""
    contrast = np.sign(transitions.potential_change) * (np.abs(transitions.potential_change) > MIN_PROGRESS_CHANGE)
    return (
        params.scale
        * ((contrast + 1) / 2 + transitions.next_potential + (transitions.success_prob >= SUCCESS_THRESHOLD))
        / 3
    )
