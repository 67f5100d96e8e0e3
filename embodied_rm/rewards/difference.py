"""The plain difference of progress, without a discount and with no rule for the end.

Source: Robometer (`use_relative_rewards`), ProcVLM's fork of RLinf. What was gained is kept when an episode ends, and
with a discount below 1 early gains count more than late ones: another optimum than the task's.
"""

from __future__ import annotations

from embodied_rm.rewards.steps import Floats, Steps, Terms


def pay(steps: Steps, terms: Terms) -> Floats:
    """task + scale (Phi' - Phi)."""
    return steps.task + terms.scale * (steps.next_potential - steps.potential)
