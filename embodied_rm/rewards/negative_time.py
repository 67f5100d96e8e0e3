"""A step costs one until success; shaped by the time that is left.

Source: RynnValue (`apply_reward_shaping`): r + kappa (gamma Phi' - Phi) with Phi the negative remaining time, and -Phi
alone at success. As there, an episode that ends in failure counts as going on. The remaining time is the share of the
limit that is left to do.
"""

from __future__ import annotations

import numpy as np

from embodied_rm.rewards.steps import Floats, Steps, Terms

KAPPA = 0.1


def pay(steps: Steps, terms: Terms) -> Floats:
    """-1, 0 at success, + kappa (gamma Phi' (not achieved) - Phi), Phi = -(1 - progress) limit. `scale` is kappa's."""
    assert terms.limit is not None
    left, next_left = ((1 - phi) * terms.limit for phi in (steps.potential, steps.next_potential))
    shaping = left - np.where(steps.achieved, 0.0, terms.gamma * next_left)
    return np.where(steps.achieved, 0.0, -1.0) + terms.scale * KAPPA * shaping
