"""Differences of progress, of episodes alone whose outcome is good enough.

Source: G-RA (gated reward accumulation): where the outcome does not exceed the gate, every reward of a step is 0. An
episode that goes on is judged by how it stands.
"""

from __future__ import annotations

import numpy as np

from embodied_rm.rewards.steps import Floats, Steps, Terms, episodes, last_of

GATE = 0.5
"""Probability of success that the end of an episode must exceed."""


def pay(steps: Steps, terms: Terms) -> Floats:
    """task + scale (Phi' - Phi) if the last probability of success of the episode exceeds the gate. Arrays [T, N]."""
    passed = last_of(steps.success, episodes(steps.ended)) > GATE
    return steps.task + terms.scale * np.where(passed, steps.next_potential - steps.potential, 0.0)
