"""What is read off the states of two moments: the hop between them, whether the task is done, the step under way."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def mlp(inputs: int, outputs: int) -> nn.Sequential:
    """Two hidden layers."""
    return nn.Sequential(nn.Linear(inputs, 256), nn.GELU(), nn.Linear(256, 128), nn.GELU(), nn.Linear(128, outputs))


class PairHead(nn.Module):
    """States of two moments [..., width] -> [..., outputs]."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.mlp = mlp(3 * width, outputs)

    def forward(self, p: Tensor, q: Tensor) -> Tensor:
        """`p` and `q` broadcast against each other."""
        p, q = torch.broadcast_tensors(p, q)
        return self.mlp(torch.cat([p, q, q - p], dim=-1))


class Heads(nn.Module):
    """The three heads of `ProgressNet`."""

    def __init__(self, width: int, max_steps: int) -> None:
        super().__init__()
        self._hop = PairHead(width, 1)
        self._completion = PairHead(width, 1)
        self._step = PairHead(width, max_steps)

    def hop(self, p: Tensor, q: Tensor) -> Tensor:
        """Relative hop from moment p to moment q, in [-1, 1]."""
        return torch.tanh(self._hop(p, q)[..., 0])

    def completion(self, first: Tensor, now: Tensor) -> Tensor:
        """Logit of "the task is done now"."""
        return self._completion(first, now)[..., 0]

    def step(self, first: Tensor, now: Tensor) -> Tensor:
        """Logits [..., max_steps] of the step under way."""
        return self._step(first, now)
