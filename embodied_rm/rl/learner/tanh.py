"""The hyperbolic tangent of the learner's networks.

PyTorch's takes a CPU ten times as long as NumPy's, which is as exact, and nearly as long as the product with a matrix
before it: a quarter of an update.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn


def tanh(x: Tensor) -> Tensor:
    """tanh(x), of any shape; differentiable where autograd records."""
    if x.is_cpu and not (torch.is_grad_enabled() and x.requires_grad):
        return torch.from_numpy(np.tanh(x.detach().numpy()))
    return torch.tanh(x)


class Tanh(nn.Module):
    """`tanh` as a layer."""

    def forward(self, x: Tensor) -> Tensor:
        return tanh(x)
