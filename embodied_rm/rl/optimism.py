"""A critic that believes the potential until it knows better (pure).

Shaping by a potential is the same as starting the values from it (Wiewiora, JAIR 2003): a critic of shaped returns that
has learned what a poor policy is worth has unlearned the potential, and then progress is no advantage. From a policy
that never succeeds there is nothing left to learn from, however good the potential. So the actor's advantages are taken
from values that give what the policy does not reach yet the benefit of the doubt, less and less of it; what is paid and
what the critic learns, stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]


@dataclass(frozen=True, kw_only=True)
class Optimism:
    """How far the potential is believed where the policy does not succeed."""

    weight: float
    """In [0, 1]; 0: not at all."""
    scale: float
    """What the rewards were shaped with: a value of shaped returns is that of the task less `scale` times the
    potential."""
    success_reward: float
    """The most that the task pays."""

    def value(self, value: Floats, potential: Floats) -> Floats:
        """Values of shaped returns, any shape, raised so that at weight 1 a potential of 1 is as good as success.

        The value V of the task becomes V + weight * potential * (success_reward - V): between V and what success pays,
        and V itself where the policy succeeds anyway.
        """
        missing = np.maximum(self.success_reward - (value + self.scale * potential), 0)
        return value + self.weight * potential * missing
