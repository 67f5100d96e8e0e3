"""What a state is worth in which the time limit cut an episode off (pure).

To a critic that knows what a failing policy is worth, progress is no advantage (shaping only starts the values from the
potential: Wiewiora, JAIR 2003): a policy that never succeeds learns nothing, however good the potential. But a time
limit is not the end of the task. What the state is worth there depends on who goes on from it; the critic speaks for
the policy at hand, and the potential for an able one (as the heuristic of Cheng et al., arXiv 2106.02757, does). So such
a state is worth at least a share of what success pays, as far as the task is done. The share is below 1, that finishing
pays more than waiting for the time limit, and falls to 0 over a refinement, that in the end nothing but success counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]


@dataclass(frozen=True, kw_only=True)
class TimeoutCredit:
    """How far the potential is believed where the time limit cut an episode off."""

    share: float
    """Of the success that a potential of 1 is worth, in [0, 1); 0: the critic alone is believed."""
    success_reward: float
    """What success pays."""

    def value(self, value: Floats, potential: Floats) -> Floats:
        """Values of the task, any shape, of states at the time limit: those of the critic, or what the potential says
        if it is more.
        """
        return np.maximum(value, self.share * self.success_reward * potential)
