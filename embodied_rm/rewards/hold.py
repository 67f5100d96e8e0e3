"""Mean of contrast, progress and completion, held between two scores, and nothing of the task.

Source: Large Reward Models (tri: `vlm_pure_reward`, `vlm_non_call_reward_mode: hold`). It pays for every step: the end
of an episode is the end of its income.
"""

from __future__ import annotations

import numpy as np

from embodied_rm.rewards.steps import Floats, Steps, Terms

DONE = 0.5
"""Probability of success from which an episode counts as complete."""
SAME = 0.01
"""Change of progress up to which two moments are equally close to the goal."""


def pay(steps: Steps, terms: Terms) -> Floats:
    """scale ((c + 1) / 2 + Phi' + d) / 3: c in {-1, 0, 1} the sign of the last change, d in {0, 1} whether it is
    done."""
    contrast = np.sign(steps.change) * (np.abs(steps.change) > SAME)
    return terms.scale * ((contrast + 1) / 2 + steps.next_potential + (steps.success >= DONE)) / 3
