"""Heuristic-guided learning with a potential, for policies that rarely succeed (pure).

Potential-based shaping does not change the advantages of a critic that knows its policy (`RolloutBuffer.make_batch`). A
policy that never succeeds therefore learns nothing, however good the potential. Cheng, Kolobov and Swaminathan (arXiv
2106.02757, "HuRL") mix the value of the next state: weight 1 - w for the policy's own value, w for the heuristic. Then
progress is rewarded over about 1 / w steps, with little noise. Immediate success is worth more than any progress, since
gamma is below 1. w falls to 0, so finally only success counts.

w depends on the final potentials (`heuristic_weight`), not on time alone. A time schedule would remove the heuristic
from a policy that has not yet learned the first half of a long task. It would also slow down a policy that has learned
nearly all of it: near the goal, a guided policy loses little by waiting, and the potential may dip before success.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating]

WINDOW_ITERATIONS = 3  # smallest number of last iterations whose episodes determine the weight


def heuristic_weight(max_weight: float, remaining: float, final_potential: float, off_at: float) -> float:
    """Return w of an iteration, in [0, max_weight], with a fraction `remaining` of the refinement left.

    It falls as the mean final potential of the last episodes (a success counts as 1) rises, slowly at first, to 0 at
    `off_at`, and rises again if that falls.
    """
    return max_weight * remaining * max(0.0, 1 - (final_potential / off_at) ** 2)


@dataclass(frozen=True, kw_only=True)
class Heuristic:
    """Mixes the critic's values with the potential."""

    weight: float  # w in [0, 1), 1 minus HuRL's mixing coefficient; 0: the critic alone
    success_reward: float  # reward of a success: the value of a state with potential 1

    def mix_next_value(self, next_value: FloatArray, potential: FloatArray) -> FloatArray:
        """Return the values of the next states, any shape, mixed with their potentials."""
        return (1 - self.weight) * next_value + self.weight * self.success_reward * potential

    def mix_lambda(self, lam: float) -> float:
        """Return the lambda of advantage estimation, reduced by the weight of the heuristic."""
        return (1 - self.weight) * lam
