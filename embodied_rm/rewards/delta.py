"""The relative hop from one score to the next.

Source: VLAC (the pairwise delta of its critic). A hop is the share of what is left: the last part of the way is worth
as much as all before it.
"""

from __future__ import annotations

from embodied_rm.labels.hops import hop
from embodied_rm.rewards.steps import Floats, Steps, Terms


def pay(steps: Steps, terms: Terms) -> Floats:
    """task + scale hop(Phi, Phi')."""
    return steps.task + terms.scale * hop(steps.potential, steps.next_potential)
