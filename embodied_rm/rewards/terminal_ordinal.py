"""A score from 1 to 5 at the end of the episode.

Source: RoboReward: (score - 1) / 4; here the rater is the progress at the end, and 5 is success.
"""

from __future__ import annotations

import numpy as np

from embodied_rm.labels.ordinal import rubric_score, score_to_reward
from embodied_rm.rewards.transitions import FloatArray, RewardParams, Transitions

MAX_FAILURE_PROGRESS = 1 - 1e-6
"""Progress of an episode that is all but done: 4 of 5."""


def compute_reward(transitions: Transitions, params: RewardParams) -> FloatArray:
    """scale (score - 1) / 4 at the end, else 0."""
    final_progress = np.where(transitions.is_success, 1.0, np.minimum(transitions.next_potential, MAX_FAILURE_PROGRESS))
    return np.where(transitions.done, params.scale * score_to_reward(rubric_score(final_progress)), 0.0)
