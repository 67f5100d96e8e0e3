"""A score from 1 to 5 at the end of the episode.

Source: RoboReward: (score - 1) / 4; here the rater is the progress at the end, and 5 is success.
"""

from __future__ import annotations

import numpy as np

from embodied_rm.labels.ordinal import reward, score
from embodied_rm.rewards.steps import Floats, Steps, Terms

SHORT = 1 - 1e-6
"""Progress of an episode that is all but done: 4 of 5."""


def pay(steps: Steps, terms: Terms) -> Floats:
    """scale (score - 1) / 4 at the end, else 0."""
    end = np.where(steps.achieved, 1.0, np.minimum(steps.next_potential, SHORT))
    return np.where(steps.ended, terms.scale * reward(score(end)), 0.0)
