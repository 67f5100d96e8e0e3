"""Plans of predictive sampling: sequences of actions between knots, drawn around the best one so far.

Source: Howell et al., arXiv 2212.00541, section IV. With a program that a language model wrote, a robot acts on it at
once (Yu et al., "Language to Rewards", arXiv 2306.08647).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from embodied_rm.errors import UserError, check_minimum
from embodied_rm.rewards.transitions import FloatArray


@dataclass(frozen=True, kw_only=True)
class PlannerConfig:
    """Predictive sampling."""

    num_samples: int = 64  # sequences of actions that are tried per plan
    horizon: int = 12  # control steps of a plan
    num_knots: int = 4  # actions of a plan, between which the others are interpolated
    noise_std: float = 1.0  # largest standard deviation of the noise of the knots; actions are in [-1, 1]
    replan_steps: int = 2  # control steps of a plan that are executed before the next one

    def __post_init__(self) -> None:
        check_minimum(self, 2, "num_samples", "num_knots", prefix="planner.")
        check_minimum(self, 1, "replan_steps", prefix="planner.")
        check_minimum(self, 0, "noise_std", prefix="planner.")
        if self.horizon < max(self.num_knots, self.replan_steps):
            raise UserError(
                f"planner.horizon must be at least planner.num_knots={self.num_knots} and "
                f"planner.replan_steps={self.replan_steps}, got {self.horizon}"
            )


def interpolate_knots(knots: FloatArray, horizon: int, times: FloatArray) -> FloatArray:
    """Return the actions of plans at some times.

    Args:
        knots: float [..., K, A], evenly spaced from step 0 to step `horizon` - 1.
        horizon: Steps of a plan.
        times: float [T], in steps; after the last knot it is repeated.

    Returns:
        float [..., T, A].
    """
    position = np.clip(times / (horizon - 1), 0, 1) * (knots.shape[-2] - 1)
    left = np.minimum(position.astype(np.int64), knots.shape[-2] - 2)
    share = (position - left)[:, None]
    return (1 - share) * knots[..., left, :] + share * knots[..., left + 1, :]


def shift_knots(knots: FloatArray, horizon: int, steps: int) -> FloatArray:
    """Return the plans from their step `steps` on; the last action is repeated."""
    times = np.linspace(0, horizon - 1, knots.shape[-2])
    return interpolate_knots(knots, horizon, times + steps)


def sample_knots(knots: FloatArray, num_samples: int, noise_std: float, rng: np.random.Generator) -> FloatArray:
    """Return plans around each of N plans.

    Args:
        knots: float [N, K, A] in [-1, 1].
        num_samples: Number M of plans around each one.
        noise_std: Standard deviation of the noise of the last plan. It rises linearly from 0, of the first plan, which
            is thus the given one: coarse and fine changes are tried at once.
        rng: Random numbers.

    Returns:
        float [N, M, K, A] in [-1, 1].
    """
    shape = (len(knots), num_samples, *knots.shape[1:])
    scale = np.linspace(0, noise_std, num_samples)[:, None, None]
    return np.clip(knots[:, None] + scale * rng.standard_normal(shape), -1, 1)
