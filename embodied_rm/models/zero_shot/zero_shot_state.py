"""`ZeroShotState`: what N videos carry from frame to frame."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from embodied_rm.models.reward_model import RewardState, RowIndices
from embodied_rm.types import Array


@dataclass(frozen=True, kw_only=True)
class ZeroShotState:
    """The `RewardState` of `ZeroShotModel`, one row per video. Immutable. Shapes: V views that a row may have."""

    tokens: Tensor  # of the instruction, float [N, L, D]
    token_mask: Tensor  # bool [N, L]
    first: Tensor  # cells of the first frame, float [N, V, cells, C]
    last: Tensor  # cells of the last frame that was new, float [N, V, cells, C]
    hidden: Tensor  # recurrent state, float [N, V, D]
    logit: Tensor  # of the potential, float [N, V]
    climb: Tensor  # see `FilterState`, float [N, V]
    disagreement: Tensor  # of the members about the progress, float [N, V]
    match: Tensor  # standardized match of sentence and first frame, float [N, V]
    seen: Tensor  # bool [N, V]: whether the view has been visible; before that, its entries are meaningless
    valid: Tensor  # bool [N]: whether the last frame had a visible view
    progress: Tensor  # at the last scored frame, float [N]
    uncertainty: Tensor  # of that progress, float [N]
    success: Tensor  # success probability, float [N]

    def __len__(self) -> int:
        return len(self.progress)

    def take(self, rows: RowIndices) -> ZeroShotState:
        """Return a copy of the given rows, in that order."""
        index = torch.as_tensor(np.asarray(rows))
        return replace(self, **{name: tensor[index] for name, tensor in self._tensors().items()})

    def put(self, rows: RowIndices, other: RewardState) -> ZeroShotState:
        """Return this state with `rows` replaced by the rows of `other`."""
        assert isinstance(other, ZeroShotState)
        index, others = torch.as_tensor(np.asarray(rows)), other._tensors()
        return replace(self, **{name: t.index_copy(0, index, others[name]) for name, t in self._tensors().items()})

    def potential(self) -> Array:
        """float32 [N]: the progress at the last scored frame."""
        return self.progress.numpy().copy()

    def embedding(self) -> Array:
        """float32 [N, D]: the recurrent state, averaged over the views."""
        return self.hidden.mean(dim=1).numpy().copy()

    def state_dict(self) -> dict[str, Tensor]:
        """Return copies of all tensors, by name."""
        return {name: tensor.clone() for name, tensor in self._tensors().items()}

    def from_state_dict(self, tensors: dict[str, Tensor]) -> ZeroShotState:
        """Return the state with these tensors."""
        return replace(self, **tensors)

    def _tensors(self) -> dict[str, Tensor]:
        return {field.name: getattr(self, field.name) for field in fields(self)}
