"""The prediction heads of `ProgressNet`: from the embeddings of two frames to the fields of `HeadOutputs`."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from embodied_rm.models.ood import EmbeddingDistribution

MIN_EXPECTED_ERROR = 0.005
"""Smallest expected error, in progress: with an expected error of 0 any observed error has infinite loss."""


class PairHead(nn.Module):
    """Embeddings of two frames [..., width] -> [..., outputs]."""

    def __init__(self, width: int, outputs: int, hidden: tuple[int, int] = (256, 128)) -> None:
        super().__init__()
        layers = (nn.Linear(3 * width, hidden[0]), nn.GELU(), nn.Linear(*hidden), nn.GELU())
        self.mlp = nn.Sequential(*layers, nn.Linear(hidden[1], outputs))

    def forward(self, p: Tensor, q: Tensor) -> Tensor:
        """Apply the head; `p` and `q` broadcast against each other."""
        p, q = torch.broadcast_tensors(p, q)
        return self.mlp(torch.cat([p, q, q - p], dim=-1))


def error_from_logit(logit: Tensor) -> Tensor:
    """Map the output [..., 1] of the error head to an expected error [...]."""
    return MIN_EXPECTED_ERROR + torch.sigmoid(logit[..., 0])


class HeadOutputs(NamedTuple):
    """Outputs of all heads for N frames, relative to A anchor frames."""

    hop: Tensor  # relative hop from each anchor, [A, N] in [-1, 1]
    expected_error: Tensor  # see `Heads.expected_error`, [N]
    success_logit: Tensor  # logit of "the task is done at this frame", [N]
    subtask_logits: Tensor  # logits of the current subtask, [N, max_subtasks]
    ood: Tensor  # see `models.ood`, [N]; NaN without a distribution of embeddings


class Heads(nn.Module):
    """The heads of `ProgressNet`."""

    def __init__(self, width: int, max_subtasks: int, with_distribution: bool = False) -> None:
        """`with_distribution`: whether the heads include a distribution of embeddings, see `models.ood`."""
        super().__init__()
        self.distribution: EmbeddingDistribution | None
        self.register_module("distribution", EmbeddingDistribution(width) if with_distribution else None)
        self._hop = PairHead(width, 1)
        self._completion = PairHead(width, 1)
        self._step = PairHead(width, max_subtasks)
        self._error = PairHead(width, 1, hidden=(64, 64))

    def forward(self, anchors: Tensor, current: Tensor) -> HeadOutputs:
        """Compute all outputs that a prediction needs, from the embeddings [N, width] of the current frames.

        `anchors` [A, N, width]: embeddings of the previous frame, the first frame and, if given, the goal.
        """
        first = anchors[1]
        return HeadOutputs(
            self.hop(anchors, current),
            self.expected_error(first, current),
            self.success_logit(first, current),
            self.subtask_logits(first, current),
            torch.full_like(current[..., 0], torch.nan) if self.distribution is None else self.distribution(current),
        )

    def hop(self, p: Tensor, q: Tensor) -> Tensor:
        """Relative hop from frame `p` to frame `q`, in [-1, 1]."""
        return torch.tanh(self._hop(p, q)[..., 0])

    def expected_error(self, first: Tensor, current: Tensor) -> Tensor:
        """Expected absolute error of the potential that is read relative to the first frame, in [0.005, 1.005].

        Its gradient stops at the embeddings, so that they are trained for the hop only.
        """
        return error_from_logit(self._error(first.detach(), current.detach()))

    def success_logit(self, first: Tensor, current: Tensor) -> Tensor:
        """Logit of "the task is done at this frame"."""
        return self._completion(first, current)[..., 0]

    def subtask_logits(self, first: Tensor, current: Tensor) -> Tensor:
        """Logits [..., max_subtasks] of the current subtask."""
        return self._step(first, current)
