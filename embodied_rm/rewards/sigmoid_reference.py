"""How much better an episode ended than those of the imitated policy.

Source: PAR (preference as reward): the mean over M reference rewards of sigmoid(k (r - r_ref)); r is the progress at
the end of the episode, the references are those of episodes of the policy that refinement starts from.
"""

from __future__ import annotations

import numpy as np

from embodied_rm.rewards.transitions import FloatArray, RewardParams, Transitions

SIGMOID_STEEPNESS = 10.0
"""k: progress lies in [0, 1], not in the range of a reward model's logits."""


def compute_reward(transitions: Transitions, params: RewardParams) -> FloatArray:
    """scale mean_m sigmoid(k (Phi' - ref_m)) at the end, else 0; `terms.references` are the ref_m."""
    assert params.reference_rewards, "no episode of the imitated policy was seen"
    reward = np.zeros(transitions.done.shape)
    final_progress = np.where(transitions.is_success, 1.0, transitions.next_potential)[transitions.done]
    win_prob = 1 / (1 + np.exp(-SIGMOID_STEEPNESS * (final_progress[:, None] - np.array(params.reference_rewards))))
    reward[transitions.done] = params.scale * win_prob.mean(axis=1)
    return reward
