"""A potential as a guide to a policy that seldom succeeds: heuristic-guided learning (pure).

Shaping by a potential leaves every advantage of a critic that knows its policy as it is (`RolloutBuffer.batch`): a
policy that never succeeds learns nothing, however good the potential. Cheng, Kolobov and Swaminathan (arXiv 2106.02757,
"HuRL") let it guide: at every step the future is that of the policy with weight 1 - w, and what the potential promises
with weight w. Progress then pays, over some 1 / w steps and with little noise. Success at once is worth more than any
progress, held for however long, since gamma is below 1; and w falls to 0: in the end nothing but success counts.

When? As its work is done (`weight`). A clock would be wrong twice: who has not yet learned the first half of a long
task would lose its guide, and who has learned nearly all of it would be held back, for close to the goal a guided
policy loses little by waiting, and between it and success the potential may dip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating]


WINDOW_ITERATIONS = 3
"""Iterations whose episodes say whether a guide is still needed."""


def heuristic_weight(max_weight: float, remaining: float, final_potentials: Sequence[float], off_at: float) -> float:
    """w of an iteration, in [0, most]: `left` of the refinement, in [0, 1], is to come.

    It falls as the guide's work is done, slowly at first, to 0 where the potential has nothing more to say: `heights`
    are the mean potentials at the ends of each iteration's episodes, a success counting as 1, and `until` in (0, 1] is
    that height. It comes back where they end lower, and falls to 0 over the whole refinement.
    """
    completion = fmean(final_potentials[-WINDOW_ITERATIONS:] or [0.0]) / off_at
    return max_weight * remaining * max(0.0, 1 - completion**2)


@dataclass(frozen=True, kw_only=True)
class Heuristic:
    """How far the potential is believed about the future."""

    weight: float
    """w in [0, 1), 1 less HuRL's mixing coefficient; 0: the critic alone is believed."""
    success_reward: float
    """What success pays: what a potential of 1 promises."""

    def mix_next_value(self, next_value: FloatArray, potential: FloatArray) -> FloatArray:
        """What follows a step: values of the task of the next states, any shape, mixed with their potentials."""
        return (1 - self.weight) * next_value + self.weight * self.success_reward * potential

    def mix_lambda(self, lam: float) -> float:
        """The decay of advantage estimation, by as much shorter as the future is the policy's own less."""
        return (1 - self.weight) * lam
