"""Differences of progress, of episodes alone whose outcome is good enough.

Source: G-RA (gated reward accumulation): where the outcome does not exceed the gate, every reward of a step is 0. An
episode that goes on is judged by how it stands.
"""

from __future__ import annotations

import numpy as np

from embodied_rm.rewards.transitions import FloatArray, RewardParams, Transitions, last_per_episode, number_episodes

MIN_SUCCESS_PROB = 0.5
"""Probability of success that the end of an episode must exceed."""


def compute_reward(transitions: Transitions, params: RewardParams) -> FloatArray:
    """task + scale (Phi' - Phi) if the last probability of success of the episode exceeds the gate. Arrays [T, N]."""
    passes_gate = last_per_episode(transitions.success_prob, number_episodes(transitions.done)) > MIN_SUCCESS_PROB
    return transitions.task_reward + params.scale * np.where(
        passes_gate, transitions.next_potential - transitions.potential, 0.0
    )
