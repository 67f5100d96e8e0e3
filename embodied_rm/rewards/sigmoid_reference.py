"""How much better an episode ended than those of the imitated policy.

Source: PAR (preference as reward): the mean over M reference rewards of sigmoid(k (r - r_ref)); r is the progress at
the end of the episode, the references are those of episodes of the policy that refinement starts from.
"""

from __future__ import annotations

import numpy as np

from embodied_rm.rewards.steps import Floats, Steps, Terms

STEEPNESS = 10.0
"""k: progress lies in [0, 1], not in the range of a reward model's logits."""


def pay(steps: Steps, terms: Terms) -> Floats:
    """scale mean_m sigmoid(k (Phi' - ref_m)) at the end, else 0; `terms.references` are the ref_m."""
    assert terms.references, "no episode of the imitated policy was seen"
    reward = np.zeros(steps.ended.shape)
    end = np.where(steps.achieved, 1.0, steps.next_potential)[steps.ended]
    better = 1 / (1 + np.exp(-STEEPNESS * (end[:, None] - np.array(terms.references))))
    reward[steps.ended] = terms.scale * better.mean(axis=1)
    return reward
