"""Fast hyperbolic tangent for the networks of the learner.

On a CPU, PyTorch's tanh takes ten times as long as NumPy's, which is as exact. It would take a quarter of an update,
nearly as long as the matrix product before it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn


def tanh(x: Tensor) -> Tensor:
    """Return tanh(x), any shape; differentiable if autograd records."""
    if x.is_cpu and not (torch.is_grad_enabled() and x.requires_grad):
        return torch.from_numpy(np.tanh(x.detach().numpy()))
    return torch.tanh(x)


class Tanh(nn.Module):
    """`tanh` as a layer."""

    def forward(self, x: Tensor) -> Tensor:
        return tanh(x)
