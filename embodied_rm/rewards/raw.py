"""Absolute progress at every step.

Source: ReWiND, beside its bonus at success. Who stays near the goal for longer than the bonus is worth earns more than
who reaches it.
"""

from __future__ import annotations

from embodied_rm.rewards.transitions import FloatArray, RewardParams, Transitions


def compute_reward(transitions: Transitions, params: RewardParams) -> FloatArray:
    """task + scale Phi'."""
    return transitions.task_reward + params.scale * transitions.next_potential
