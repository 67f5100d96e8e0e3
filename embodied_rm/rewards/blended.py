"""The task, and progress with a weight that is learned by what it does for the task.

Source: BARFI (behaviour alignment via reward function optimisation): an inner loop learns from a blend of the task's
and an auxiliary reward, an outer loop moves the blend along the gradient of the task's own return;
`embodied_rm.rl.credit.auxiliary_weight` is that outer loop.
"""

from __future__ import annotations

from embodied_rm.rewards.transitions import FloatArray, RewardParams, Transitions


def compute_reward(transitions: Transitions, params: RewardParams) -> FloatArray:
    """task + blend * auxiliary."""
    return transitions.task_reward + params.auxiliary_weight * auxiliary_reward(transitions, params)


def auxiliary_reward(transitions: Transitions, params: RewardParams) -> FloatArray:
    """scale Phi': progress, as it stands."""
    return params.scale * transitions.next_potential
