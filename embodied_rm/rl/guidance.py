"""A potential as a guide to a policy that seldom succeeds: heuristic-guided learning (pure).

Shaping by a potential leaves every advantage of a critic that knows its policy as it is (`RolloutBuffer.batch`): a
policy that never succeeds learns nothing, however good the potential. Cheng, Kolobov and Swaminathan (arXiv 2106.02757,
"HuRL") let it guide: at every step the future is that of the policy with weight 1 - w, and what the potential promises
with weight w. Progress then pays, over some 1 / w steps and with little noise. Success at once is worth more than any
progress, held for however long, since gamma is below 1; and w falls to 0 over the first half of a refinement, so that
in the end nothing but success counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]


@dataclass(frozen=True, kw_only=True)
class Guidance:
    """How far the potential is believed about the future."""

    weight: float
    """w in [0, 1), 1 less HuRL's mixing coefficient; 0: the critic alone is believed."""
    success_reward: float
    """What success pays: what a potential of 1 promises."""

    def value(self, value: Floats, potential: Floats) -> Floats:
        """What follows a step: values of the task of the next states, any shape, mixed with their potentials."""
        return (1 - self.weight) * value + self.weight * self.success_reward * potential

    def trace(self, lam: float) -> float:
        """The decay of advantage estimation, by as much shorter as the future is the policy's own less."""
        return (1 - self.weight) * lam
