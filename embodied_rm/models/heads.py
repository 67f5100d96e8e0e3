"""What is read off the states of two moments: the hop between them and how wrong it is, whether the task is done, the
step under way, how unusual the state is."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from embodied_rm.models.ood import EmbeddingDistribution, ood_score

MIN_EXPECTED_ERROR = 0.005
"""Error, progress, that is expected at the least: none expected would make any found infinitely unlikely."""


def mlp(inputs: int, outputs: int, hidden: tuple[int, int] = (256, 128)) -> nn.Sequential:
    """Two hidden layers."""
    wide, narrow = hidden
    return nn.Sequential(
        nn.Linear(inputs, wide), nn.GELU(), nn.Linear(wide, narrow), nn.GELU(), nn.Linear(narrow, outputs)
    )


class PairHead(nn.Module):
    """States of two moments [..., width] -> [..., outputs]."""

    def __init__(self, width: int, outputs: int, hidden: tuple[int, int] = (256, 128)) -> None:
        super().__init__()
        self.mlp = mlp(3 * width, outputs, hidden)

    def forward(self, p: Tensor, q: Tensor) -> Tensor:
        """`p` and `q` broadcast against each other."""
        p, q = torch.broadcast_tensors(p, q)
        return self.mlp(torch.cat([p, q, q - p], dim=-1))


def error_from_logit(logit: Tensor) -> Tensor:
    """What the output [..., 1] of the error head says, [...]."""
    return MIN_EXPECTED_ERROR + torch.sigmoid(logit[..., 0])


class HeadOutputs(NamedTuple):
    """What the heads say of N moments as seen from A anchors."""

    hop: Tensor
    """Relative hops from each anchor, [A, N] in [-1, 1]."""
    expected_error: Tensor
    """See `Heads.error`, [N]."""
    success_logit: Tensor
    """Logits of "the task is done now", [N]."""
    subtask_logits: Tensor
    """Logits of the step under way, [N, max_steps]."""
    ood: Tensor
    """See `models.ood`, [N]; nan where no distribution of states is known."""


class Heads(nn.Module):
    """The heads of `ProgressNet`."""

    def __init__(self, width: int, max_subtasks: int, with_distribution: bool = False) -> None:
        """`known`: whether the distribution of states is, see `models/ood.py`."""
        super().__init__()
        self.distribution: EmbeddingDistribution | None
        self.register_module("distribution", EmbeddingDistribution(width) if with_distribution else None)
        self._hop = PairHead(width, 1)
        self._completion = PairHead(width, 1)
        self._step = PairHead(width, max_subtasks)
        self._error = PairHead(width, 1, hidden=(64, 64))

    def forward(self, anchors: Tensor, current: Tensor) -> HeadOutputs:
        """All that a prediction needs. `anchors` [A, N, width]: states of the previous moment, of the first, and perhaps
        of others; `now` [N, width]."""
        first = anchors[1]
        return HeadOutputs(
            self.hop(anchors, current),
            self.expected_error(first, current),
            self.success_logit(first, current),
            self.subtask_logits(first, current),
            ood_score(self.distribution, current),
        )

    def hop(self, p: Tensor, q: Tensor) -> Tensor:
        """Relative hop from moment p to moment q, in [-1, 1]."""
        return torch.tanh(self._hop(p, q)[..., 0])

    def expected_error(self, first: Tensor, current: Tensor) -> Tensor:
        """Absolute error to expect of the potential as seen from the first moment, in [0.005, 1.005].

        It teaches the states nothing: they serve the hop, not the doubt about it.
        """
        return error_from_logit(self._error(first.detach(), current.detach()))

    def success_logit(self, first: Tensor, current: Tensor) -> Tensor:
        """Logit of "the task is done now"."""
        return self._completion(first, current)[..., 0]

    def subtask_logits(self, first: Tensor, current: Tensor) -> Tensor:
        """Logits [..., max_steps] of the step under way."""
        return self._step(first, current)
