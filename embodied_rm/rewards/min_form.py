"""The worst step of an episode counts, the others hardly do.

Source: PURE (min-form credit assignment): w = softmax(-r / T) over the steps of an episode, T = 0.1, rewards w r; r is
the progress made in a step.
"""

from __future__ import annotations

import numpy as np

from embodied_rm.rewards.steps import Floats, Steps, Terms, episodes, sum_of

TEMPERATURE = 0.1


def pay(steps: Steps, terms: Terms) -> Floats:
    """task + scale w r. Arrays [T, N]."""
    made, number = steps.next_potential - steps.potential, episodes(steps.ended)
    weight = np.exp(-made / TEMPERATURE)
    share = weight / sum_of(weight, number)
    return steps.task + terms.scale * share * made
