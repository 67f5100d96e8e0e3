"""`TensorState`: what every `RewardState` that is made of tensors does with its rows."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from embodied_rm.models.reward_model import RewardState, RowIndices


@dataclass(frozen=True, kw_only=True)
class TensorState:
    """Base of the states of models. Immutable; every field is a tensor [N, ...] of one row per environment, or None."""

    def update_rows(self, mask: Tensor, **new: Tensor) -> Self:
        """Return the state with the given tensors in the rows of `mask` (bool [N])."""
        masks = {name: mask.view(-1, *[1] * (tensor.ndim - 1)) for name, tensor in new.items()}
        return replace(self, **{k: torch.where(masks[k], tensor, getattr(self, k)) for k, tensor in new.items()})

    def take(self, rows: RowIndices) -> Self:
        """Return a copy of the given rows, in that order."""
        index = torch.as_tensor(np.asarray(rows), device=self._device)
        return replace(self, **{name: tensor[index] for name, tensor in self._tensors().items()})

    def put(self, rows: RowIndices, other: RewardState) -> Self:
        """Return this state with `rows` replaced by the rows of `other`, a state of the same model."""
        assert isinstance(other, type(self))
        index, others = torch.as_tensor(np.asarray(rows), device=self._device), other._tensors()
        return replace(self, **{name: t.index_copy(0, index, others[name]) for name, t in self._tensors().items()})

    def state_dict(self) -> dict[str, Tensor]:
        """Return copies of all tensors, by name, on the CPU."""
        return {name: tensor.to("cpu", copy=True) for name, tensor in self._tensors().items()}

    def from_state_dict(self, tensors: dict[str, Tensor]) -> Self:
        """Return the state with these tensors, on the device of this one."""
        return replace(self, **{name: tensor.to(self._device) for name, tensor in tensors.items()})

    @property
    def _device(self) -> torch.device:
        return next(iter(self._tensors().values())).device

    def _tensors(self) -> dict[str, Tensor]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}
