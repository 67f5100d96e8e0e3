"""What an episode's past contributes to the next judgement: a handful of tensors, one row an environment."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from embodied_rm.errors import UserError
from embodied_rm.models.base import Memory, Rows
from embodied_rm.types import Array, Progress


@dataclass(frozen=True, kw_only=True)
class FrameMemory:
    """The `Memory` of `ProgressNet`. No operation changes it; `take` and `put` give new ones."""

    instruction: Tensor
    """float [N, width]."""
    first: Tensor
    """State of the first frame seen, float [N, width]."""
    first_looks: Tensor
    """States of it without each of the views, float [N, V, width]."""
    previous: Tensor
    """State of the last frame scored, float [N, width]."""
    opened: Tensor
    """bool [N]: whether any frame has been seen; until then `first` and `previous` mean nothing."""
    phi: Tensor
    """The carried potential, float32 [N]."""
    doubt: Tensor
    """The carried expected error of the potential, float32 [N]."""
    success: Tensor
    """Last completion probability, float32 [N]."""
    stage: Tensor
    """Last step under way, int64 [N]."""
    goal: Tensor | None = None
    """State of the goal picture, float [N, width]; None: no goals were given."""
    reference: Tensor | None = None
    """States of the demonstration's moments, float [N, R, width]; None: none were given, as in the next three."""
    reference_progress: Tensor | None = None
    """Progress at these moments, float [N, R]."""
    belief: Tensor | None = None
    """Probability that the last frame scored was at each of them, float [N, R]."""
    passed: Tensor | None = None
    """How surely each of them was ever passed, float [N, R]."""

    @classmethod
    def fresh(
        cls,
        instruction: Tensor,
        state: Tensor,
        looks: Tensor,
        opened: Tensor,
        goal: Tensor | None,
        **reference: Tensor,
    ) -> FrameMemory:
        """The memory of episodes that have shown only their first frame, whose `looks` are its states without each of
        the views: potential 0."""
        nothing = torch.zeros(len(state), device=state.device)
        return cls(
            instruction=instruction,
            first=state,
            first_looks=looks,
            previous=state,
            opened=opened,
            phi=nothing,
            doubt=nothing,
            success=nothing,
            stage=nothing.long(),
            goal=goal,
            **reference,
        )

    def __len__(self) -> int:
        return len(self.phi)

    def opened_by(self, state: Tensor, looks: Tensor, seen: Tensor) -> FrameMemory:
        """Rows that see their first frame only now begin with it."""
        now = seen & ~self.opened
        return replace(self.updated(now, first=state, first_looks=looks, previous=state), opened=self.opened | seen)

    def updated(self, seen: Tensor, **new: Tensor) -> FrameMemory:
        """The given tensors in the rows `seen` (bool [N]), what they were in the others."""
        rows = {name: seen.view(-1, *[1] * (tensor.ndim - 1)) for name, tensor in new.items()}
        return replace(self, **{k: torch.where(rows[k], tensor, getattr(self, k)) for k, tensor in new.items()})

    def progress(self, valid: Tensor, spread: Array, ood: Array) -> Progress:
        """What this memory holds, as a judgement."""
        judged = valid.cpu().numpy()
        return Progress(
            value=self.potential(),
            valid=judged,
            stage=self.stage.cpu().numpy(),
            success=self.success.cpu().numpy(),
            spread=np.where(judged, spread, np.float32(0)),
            ood=np.where(judged, ood, np.float32(np.nan)),
        )

    def take(self, rows: Rows) -> FrameMemory:
        """A copy of the given rows, in that order."""
        index = torch.as_tensor(np.asarray(rows), device=self.phi.device)
        return replace(self, **{name: tensor[index] for name, tensor in self._tensors().items()})

    def put(self, rows: Rows, other: Memory) -> FrameMemory:
        """This memory with `rows` replaced by the rows of `other`.

        Raises `UserError` when one of the two has goals or references and the other has none.
        """
        assert isinstance(other, FrameMemory)
        for name, what in (("goal", "goal picture"), ("reference", "reference")):
            if (getattr(self, name) is None) != (getattr(other, name) is None):
                raise UserError(f"environments of one batch must all have a {what}, or none of them")
        index = torch.as_tensor(np.asarray(rows), device=self.phi.device)
        theirs = other._tensors()
        return replace(
            self, **{name: mine.index_copy(0, index, theirs[name]) for name, mine in self._tensors().items()}
        )

    def potential(self) -> Array:
        """float32 [N]: the carried fused potential."""
        return self.phi.cpu().numpy().copy()

    def embedding(self) -> Array:
        """float32 [N, width]: the state of the last frame scored."""
        return self.previous.cpu().numpy().copy()

    def state(self) -> dict[str, Tensor]:
        """Copies of its tensors by name."""
        return {name: tensor.to("cpu", copy=True) for name, tensor in self._tensors().items()}

    def restored(self, state: dict[str, Tensor]) -> FrameMemory:
        """The memory of these tensors, on the device of this one."""
        return replace(self, **{name: tensor.to(self.phi.device) for name, tensor in state.items()})

    def _tensors(self) -> dict[str, Tensor]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}
