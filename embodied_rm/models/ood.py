"""How far a state lies from those that the model was calibrated on: the out-of-distribution score.

Source: K. Lee et al., A Simple Unified Framework for Detecting Out-of-Distribution Samples, NeurIPS 2018: the
Mahalanobis distance in the features of a network. One Gaussian over all tasks: one a task told no more apart.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from embodied_rm.errors import DataError
from embodied_rm.types import Array

RIDGE = 0.01
"""Added to every variance, share of their mean: directions in which no state differs say nothing."""
COMMON = 0.99
"""Share of the states of held-out episodes that have a score of at most 1."""
USUAL = 0.6
"""Score of a usual state: the median over held-out episodes, of the model in the box."""
LEAST = 100
"""Fewest states on each side: of fewer, no hundredth can be told."""


class StateDistribution(nn.Module):
    """States [..., width] -> their score [...] >= 0; 1: only one in a hundred states of held-out episodes lies as far
    off. Not trained; see `fitted`."""

    mean: Tensor
    whitening: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("whitening", torch.zeros(width, width))

    def forward(self, states: Tensor) -> Tensor:
        """Mahalanobis distance from the mean, as a multiple of the one that few held-out states exceed."""
        return ((states - self.mean) @ self.whitening).norm(dim=-1)

    @classmethod
    def fitted(cls, states: Tensor, held_out: Tensor) -> StateDistribution:
        """Mean and covariance of `states` [S, width], the limit from `held_out` [H, width], which are of other
        episodes. Raises `DataError` where there are too few."""
        if min(len(states), len(held_out)) < LEAST:
            raise DataError(
                f"got {len(states)} and {len(held_out)} states: give several episodes with {2 * LEAST} frames in all"
            )
        itself = cls(states.shape[1])
        exact = states.double()
        covariance = torch.cov(exact.T, correction=0)
        ridge = RIDGE * covariance.diagonal().mean() * torch.eye(len(covariance))
        itself.mean = exact.mean(dim=0).float()
        itself.whitening = torch.linalg.cholesky(torch.linalg.inv(covariance + ridge)).float()
        itself.whitening /= torch.quantile(itself(held_out), COMMON)
        return itself


def ood_score(distribution: StateDistribution | None, states: Tensor) -> Tensor:
    """What the distribution says of states [..., width], [...]; nan where none is known."""
    return torch.full_like(states[..., 0], torch.nan) if distribution is None else distribution(states)


def widening(score: Array) -> Array:
    """By how much, float32 [N] >= 1, the doubt about states of that score grows: 1 where they are usual or nothing is
    known of them. What was learned about errors was learned where states are usual."""
    return np.square(np.fmax(score / USUAL, 1)).astype(np.float32)
