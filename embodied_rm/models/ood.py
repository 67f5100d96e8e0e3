"""How far a state lies from those that the model was calibrated on: the out-of-distribution score.

Source: K. Lee et al., A Simple Unified Framework for Detecting Out-of-Distribution Samples, NeurIPS 2018: the
Mahalanobis distance in the features of a network. One Gaussian over all tasks: one a task told no more apart.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from embodied_rm.types import Array

COVARIANCE_RIDGE = 0.01
"""Added to every variance, share of their mean: directions in which no state differs say nothing."""
LIMIT_QUANTILE = 0.99
"""Share of the states of held-out episodes that have a score of at most 1."""
MIN_SAMPLES = 100
"""Fewest states to fit it on, and to take the limit from: of fewer, no hundredth can be told."""
MAX_UNCERTAINTY_FACTOR = 16.0
"""Most that doubt grows by: four times as unusual as usual, nothing is known any more."""


class EmbeddingDistribution(nn.Module):
    """States [..., width] -> their score [...] >= 0; 1: only one in a hundred states of held-out episodes lies as far
    off. Not trained; see `fitted`."""

    mean: Tensor
    whitening: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("whitening", torch.zeros(width, width))

    def forward(self, embeddings: Tensor) -> Tensor:
        """Mahalanobis distance from the mean, as a multiple of the one that few held-out states exceed."""
        return ((embeddings - self.mean) @ self.whitening).norm(dim=-1)

    @classmethod
    def fit(cls, embeddings: Tensor, held_out: Tensor) -> EmbeddingDistribution:
        """Mean and covariance of `states` [S, width], the limit from `held_out` [H, width], which are of other
        episodes; at least `LEAST` of each."""
        assert min(len(embeddings), len(held_out)) >= MIN_SAMPLES
        distribution = cls(embeddings.shape[1])
        samples = embeddings.double()
        covariance = torch.cov(samples.T, correction=0)
        ridge = COVARIANCE_RIDGE * covariance.diagonal().mean() * torch.eye(len(covariance))
        distribution.mean = samples.mean(dim=0).float()
        distribution.whitening = torch.linalg.cholesky(torch.linalg.inv(covariance + ridge)).float()
        distribution.whitening /= torch.quantile(distribution(held_out), LIMIT_QUANTILE)
        return distribution


def ood_score(distribution: EmbeddingDistribution | None, embeddings: Tensor) -> Tensor:
    """What the distribution says of states [..., width], [...]; nan where none is known."""
    return torch.full_like(embeddings[..., 0], torch.nan) if distribution is None else distribution(embeddings)


def inflate_uncertainty(uncertainty: Array, score: Array, typical_score: float | None) -> Array:
    """Doubt [N] about states of that score [N], at most 1: larger by the square of how many times the `usual` score
    theirs is, as it was where nothing is known of them. What was learned about errors was learned where states are
    usual."""
    if typical_score is None:
        return uncertainty
    inflated = uncertainty * np.clip(np.nan_to_num(score) / typical_score, 1, np.sqrt(MAX_UNCERTAINTY_FACTOR)) ** 2
    return np.minimum(inflated, 1).astype(np.float32)
