"""The worst step of an episode counts, the others hardly do.

Source: PURE (min-form credit assignment): w = softmax(-r / T) over the steps of an episode, T = 0.1, rewards w r; r is
the progress made in a step.
"""

from __future__ import annotations

import numpy as np

from embodied_rm.rewards.transitions import FloatArray, RewardParams, Transitions, number_episodes, sum_per_episode

TEMPERATURE = 0.1


def compute_reward(transitions: Transitions, params: RewardParams) -> FloatArray:
    """task + scale w r. Arrays [T, N]."""
    gain, episode_ids = transitions.next_potential - transitions.potential, number_episodes(transitions.done)
    weight = np.exp(-gain / TEMPERATURE)
    normalized_weight = weight / sum_per_episode(weight, episode_ids)
    return transitions.task_reward + params.scale * normalized_weight * gain
