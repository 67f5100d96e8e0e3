"""Networks of one shape whose weights differ, as one batched computation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


class EnsembleLinear(nn.Module):
    """A linear layer of each of E members: [E, B, in] -> [E, B, out]."""

    def __init__(self, num_members: int, fan_in: int, fan_out: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(fan_in)
        self.weight = nn.Parameter(torch.empty(num_members, fan_in, fan_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(num_members, 1, fan_out).uniform_(-bound, bound))

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, inputs, self.weight)


class EnsembleMLP(nn.Module):
    """E networks of one shape with layer normalization.

    The normalization keeps values of unseen actions finite (Ball et al., arXiv 2302.02948, "RLPD").
    """

    def __init__(self, num_members: int, num_inputs: int, hidden: Sequence[int], num_outputs: int = 1) -> None:
        super().__init__()
        self.num_members = num_members
        sizes = [num_inputs, *hidden, num_outputs]
        self.layers = nn.ModuleList(EnsembleLinear(num_members, fan_in, fan_out) for fan_in, fan_out in pairwise(sizes))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return outputs [E, B, out] for the same inputs [B, in] of all members, or for inputs [E, B, in] of each."""
        x = inputs.expand(self.num_members, *inputs.shape[-2:])
        for layer in self.layers[:-1]:
            x = layer(x)
            x = functional.relu(functional.layer_norm(x, x.shape[-1:]))
        outputs: Tensor = self.layers[-1](x)
        return outputs

    def values(self, inputs: Tensor) -> Tensor:
        """Return the single output [E, B] of networks that have one."""
        values: Tensor = self(inputs).squeeze(-1)
        return values
