"""`CellMetric`: how much each direction of a cell's vector counts when two frames are compared.

Copies of a frame that differ in crop and color show the same state. Directions in which they differ say nothing about
progress, and count less: within-class whitening, as in linear discriminant analysis.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MAX_DIRECTIONS = 64  # directions per cell that count less than the others
MIN_VARIANCE = 1e-8  # mean variance below which copies count as equal


@dataclass(frozen=True, kw_only=True)
class CellMetric:
    """Gains of the cells of one view along K directions; the gain of all other directions is 1."""

    directions: Tensor  # orthonormal rows, float [cells, K, C]
    gains: Tensor  # float [cells, K] in (0, 1]

    def transform(self, cells: Tensor) -> Tensor:
        """Return the cells [M, cells, C] in coordinates whose squared distance is this metric."""
        along = torch.einsum("mnc,nkc->mnk", cells, self.directions)
        return cells + torch.einsum("mnk,nkc->mnc", along * (self.gains - 1), self.directions)


def identity_metric(num_cells: int, num_channels: int) -> CellMetric:
    """Return the metric in which all directions count alike."""
    return CellMetric(directions=torch.zeros(num_cells, 0, num_channels), gains=torch.ones(num_cells, 0))


def learn_cell_metric(copies: Tensor) -> CellMetric:
    """Learn the metric of one view.

    The variance along a direction is regularized by the mean variance of all of the cell's directions: the gain is
    sqrt(mean / (mean + variance)).

    Args:
        copies: Cells of P copies of T frames, float [P, T, cells, C].

    Returns:
        The metric along the `MAX_DIRECTIONS` directions in which the copies of a frame differ most.
    """
    residual = (copies - copies.mean(dim=0)).permute(2, 0, 1, 3).flatten(1, 2)  # [cells, P * T, C]
    covariance = residual.transpose(1, 2) @ residual / residual.shape[1]
    mean_variance = covariance.diagonal(dim1=1, dim2=2).mean(dim=1, keepdim=True).clamp_min(MIN_VARIANCE)
    variances, vectors = torch.linalg.eigh(covariance)  # ascending
    largest = variances[:, -MAX_DIRECTIONS:].clamp_min(0)
    return CellMetric(
        directions=vectors[:, :, -MAX_DIRECTIONS:].transpose(1, 2).contiguous(),
        gains=(mean_variance / (mean_variance + largest)).sqrt(),
    )
