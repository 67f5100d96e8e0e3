"""How far a state lies from those that the model was calibrated on: the out-of-distribution score.

Source: K. Lee et al., A Simple Unified Framework for Detecting Out-of-Distribution Samples, NeurIPS 2018: the
Mahalanobis distance in the features of a network. One Gaussian over all tasks: one a task told no more apart.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from embodied_rm.types import Array

RIDGE = 0.01
"""Added to every variance, share of their mean: directions in which no state differs say nothing."""
COMMON = 0.99
"""Share of the states of held-out episodes that have a score of at most 1."""
LEAST = 100
"""Fewest states to fit it on, and to take the limit from: of fewer, no hundredth can be told."""
WIDEST = 16.0
"""Most that doubt grows by: four times as unusual as usual, nothing is known any more."""


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
        episodes; at least `LEAST` of each."""
        assert min(len(states), len(held_out)) >= LEAST
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


def widened(spread: Array, score: Array, usual: float | None) -> Array:
    """Doubt [N] about states of that score [N], at most 1: larger by the square of how many times the `usual` score
    theirs is, as it was where nothing is known of them. What was learned about errors was learned where states are
    usual."""
    if usual is None:
        return spread
    grown = spread * np.clip(np.nan_to_num(score) / usual, 1, np.sqrt(WIDEST)) ** 2
    return np.minimum(grown, 1).astype(np.float32)
