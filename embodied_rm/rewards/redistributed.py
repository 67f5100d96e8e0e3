"""The success of an episode, handed out over its steps by what each contributed.

Source: SPA-RL (stepwise progress attribution): an estimator is taught that its contributions add up to the outcome of
an episode, and they are paid in place of it; `embodied_rm.rl.credit.attribution` is that estimator. The grounding term,
for actions that an environment refuses, is left out: every action of a robot can be executed.
"""

from __future__ import annotations

from embodied_rm.rewards.transitions import FloatArray, RewardParams, Transitions


def compute_reward(transitions: Transitions, params: RewardParams) -> FloatArray:
    """scale c. Arrays [T, N]; `steps.contribution` is needed."""
    assert transitions.contribution is not None
    return params.scale * transitions.contribution
