"""The task, and progress with a weight that is learned by what it does for the task.

Source: BARFI (behaviour alignment via reward function optimisation): an inner loop learns from a blend of the task's
and an auxiliary reward, an outer loop moves the blend along the gradient of the task's own return;
`embodied_rm.rl.credit.blend` is that outer loop.
"""

from __future__ import annotations

from embodied_rm.rewards.steps import Floats, Steps, Terms


def pay(steps: Steps, terms: Terms) -> Floats:
    """task + blend * auxiliary."""
    return steps.task + terms.blend * auxiliary(steps, terms)


def auxiliary(steps: Steps, terms: Terms) -> Floats:
    """scale Phi': progress, as it stands."""
    return terms.scale * steps.next_potential
