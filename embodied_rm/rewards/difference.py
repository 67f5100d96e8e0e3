"""The plain difference of progress, without a discount and with no rule for the end.

Source: Robometer (`use_relative_rewards`), ProcVLM's fork of RLinf. What was gained is kept when an episode ends, and
with a discount below 1 early gains count more than late ones: another optimum than the task's.
"""

from __future__ import annotations

from embodied_rm.rewards.transitions import FloatArray, RewardParams, Transitions


def compute_reward(transitions: Transitions, params: RewardParams) -> FloatArray:
    """task + scale (Phi' - Phi)."""
    return transitions.task_reward + params.scale * (transitions.next_potential - transitions.potential)
