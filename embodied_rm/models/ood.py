"""The out-of-distribution (OOD) score: distance of an embedding from those that the model was calibrated on.

Source: K. Lee et al., A Simple Unified Framework for Detecting Out-of-Distribution Samples, NeurIPS 2018: the
Mahalanobis distance in the features of a network. One Gaussian covers all tasks; one per task separated no better.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from embodied_rm.types import Array

COVARIANCE_RIDGE = 0.01
"""Added to every variance, as a share of their mean, so that directions without variance do not dominate the score."""
LIMIT_QUANTILE = 0.99  # share of held-out embeddings with a score of at most 1
MIN_SAMPLES = 100  # fewest embeddings for the fit, and for its limit: the 99 % quantile needs at least 100 samples
MAX_UNCERTAINTY_FACTOR = 16.0  # largest factor on the uncertainty, reached at four times the typical score


class EmbeddingDistribution(nn.Module):
    """Embeddings [..., width] -> OOD score [...] >= 0; 1 is exceeded by one in a hundred held-out embeddings."""

    mean: Tensor
    whitening: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("whitening", torch.zeros(width, width))

    def forward(self, embeddings: Tensor) -> Tensor:
        """Mahalanobis distance from the mean, relative to the 99 % quantile of held-out distances."""
        return ((embeddings - self.mean) @ self.whitening).norm(dim=-1)

    @classmethod
    def fit(cls, embeddings: Tensor, held_out: Tensor) -> EmbeddingDistribution:
        """Fit mean and covariance, and scale the distance by a quantile of the distances of other episodes.

        Both arguments have at least `MIN_SAMPLES` rows, [S, width] and [H, width].
        """
        assert min(len(embeddings), len(held_out)) >= MIN_SAMPLES
        distribution = cls(embeddings.shape[1])
        samples = embeddings.double()
        covariance = torch.cov(samples.T, correction=0)
        ridge = COVARIANCE_RIDGE * covariance.diagonal().mean() * torch.eye(len(covariance))
        distribution.mean = samples.mean(dim=0).float()
        distribution.whitening = torch.linalg.cholesky(torch.linalg.inv(covariance + ridge)).float()
        distribution.whitening /= torch.quantile(distribution(held_out), LIMIT_QUANTILE)
        return distribution


def inflate_uncertainty(uncertainty: Array, score: Array, typical_score: float | None) -> Array:
    """Enlarge the uncertainty float32 [N] of unusual frames, to at most 1; NaN scores change nothing.

    The factor is the square of the score relative to its typical value, the median of held-out episodes: expected
    errors were learned on typical frames. Without a typical score, the uncertainty is returned unchanged.
    """
    if typical_score is None:
        return uncertainty
    inflated = uncertainty * np.clip(np.nan_to_num(score) / typical_score, 1, np.sqrt(MAX_UNCERTAINTY_FACTOR)) ** 2
    return np.minimum(inflated, 1).astype(np.float32)
