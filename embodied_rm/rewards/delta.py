"""The relative hop from one score to the next.

Source: VLAC (the pairwise delta of its critic). A hop is the share of what is left: the last part of the way is worth
as much as all before it.
"""

from __future__ import annotations

from embodied_rm.labels.hops import hop
from embodied_rm.rewards.transitions import FloatArray, RewardParams, Transitions


def compute_reward(transitions: Transitions, params: RewardParams) -> FloatArray:
    """task + scale hop(Phi, Phi')."""
    return transitions.task_reward + params.scale * hop(transitions.potential, transitions.next_potential)
