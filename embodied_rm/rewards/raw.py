"""Absolute progress at every step.

Source: ReWiND, beside its bonus at success. Who stays near the goal for longer than the bonus is worth earns more than
who reaches it.
"""

from __future__ import annotations

from embodied_rm.rewards.steps import Floats, Steps, Terms


def pay(steps: Steps, terms: Terms) -> Floats:
    """task + scale Phi'."""
    return steps.task + terms.scale * steps.next_potential
