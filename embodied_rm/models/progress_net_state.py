"""What an episode's past contributes to the next prediction: a handful of tensors, one row an environment."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from embodied_rm.errors import UserError
from embodied_rm.models.reward_model import RewardState, RowIndices
from embodied_rm.types import Array, RewardOutput


@dataclass(frozen=True, kw_only=True)
class ProgressNetState:
    """The `Memory` of `ProgressNet`. No operation changes it; `take` and `put` give new ones."""

    instruction: Tensor
    """float [N, width]."""
    first_embedding: Tensor
    """State of the first frame seen, float [N, width]."""
    first_leave_one_out: Tensor
    """States of it without each of the views, float [N, V, width]."""
    previous_embedding: Tensor
    """State of the last frame scored, float [N, width]."""
    has_observation: Tensor
    """bool [N]: whether any frame has been seen; until then `first` and `previous` mean nothing."""
    carried_potential: Tensor
    """The carried potential, float32 [N]."""
    expected_error: Tensor
    """The carried expected error of the potential, float32 [N]."""
    success: Tensor
    """Last completion probability, float32 [N]."""
    subtask: Tensor
    """Last step under way, int64 [N]."""
    goal_embedding: Tensor | None = None
    """State of the goal image, float [N, width]; None: no goals were given."""
    reference_embeddings: Tensor | None = None
    """States of the demonstration's moments, float [N, R, width]; None: none were given, as in the next three."""
    reference_progress: Tensor | None = None
    """Progress at these moments, float [N, R]."""
    belief: Tensor | None = None
    """Probability that the last frame scored was at each of them, float [N, R]."""
    max_belief: Tensor | None = None
    """How surely each of them was ever passed, float [N, R]."""

    @classmethod
    def initial(
        cls,
        instruction: Tensor,
        embedding: Tensor,
        leave_one_out: Tensor,
        has_observation: Tensor,
        goal_embedding: Tensor | None,
        **reference: Tensor,
    ) -> ProgressNetState:
        """The memory of episodes that have shown only their first frame, whose `looks` are its states without each of
        the views: potential 0."""
        zeros = torch.zeros(len(embedding), device=embedding.device)
        return cls(
            instruction=instruction,
            first_embedding=embedding,
            first_leave_one_out=leave_one_out,
            previous_embedding=embedding,
            has_observation=has_observation,
            carried_potential=zeros,
            expected_error=zeros,
            success=zeros,
            subtask=zeros.long(),
            goal_embedding=goal_embedding,
            **reference,
        )

    def __len__(self) -> int:
        return len(self.carried_potential)

    def start_rows(self, embedding: Tensor, leave_one_out: Tensor, visible: Tensor) -> ProgressNetState:
        """Rows that see their first frame only now begin with it."""
        starting = visible & ~self.has_observation
        return replace(
            self.update_rows(
                starting, first_embedding=embedding, first_leave_one_out=leave_one_out, previous_embedding=embedding
            ),
            has_observation=self.has_observation | visible,
        )

    def update_rows(self, mask: Tensor, **new: Tensor) -> ProgressNetState:
        """The given tensors in the rows `seen` (bool [N]), what they were in the others."""
        masks = {name: mask.view(-1, *[1] * (tensor.ndim - 1)) for name, tensor in new.items()}
        return replace(self, **{k: torch.where(masks[k], tensor, getattr(self, k)) for k, tensor in new.items()})

    def to_output(self, valid: Tensor, uncertainty: Array, ood: Array) -> RewardOutput:
        """What this memory holds, as a prediction."""
        scored = valid.cpu().numpy()
        return RewardOutput(
            progress=self.potential(),
            valid=scored,
            subtask=self.subtask.cpu().numpy(),
            success=self.success.cpu().numpy(),
            uncertainty=np.where(scored, uncertainty, np.float32(0)),
            ood=np.where(scored, ood, np.float32(np.nan)),
        )

    def take(self, rows: RowIndices) -> ProgressNetState:
        """A copy of the given rows, in that order."""
        index = torch.as_tensor(np.asarray(rows), device=self.carried_potential.device)
        return replace(self, **{name: tensor[index] for name, tensor in self._tensors().items()})

    def put(self, rows: RowIndices, other: RewardState) -> ProgressNetState:
        """This memory with `rows` replaced by the rows of `other`.

        Raises `UserError` when one of the two has goals or references and the other has none.
        """
        assert isinstance(other, ProgressNetState)
        for name, label in (("goal_embedding", "goal image"), ("reference_embeddings", "reference")):
            if (getattr(self, name) is None) != (getattr(other, name) is None):
                raise UserError(f"environments of one batch must all have a {label}, or none of them")
        index = torch.as_tensor(np.asarray(rows), device=self.carried_potential.device)
        other_tensors = other._tensors()
        return replace(
            self, **{name: tensor.index_copy(0, index, other_tensors[name]) for name, tensor in self._tensors().items()}
        )

    def potential(self) -> Array:
        """float32 [N]: the carried fused potential."""
        return self.carried_potential.cpu().numpy().copy()

    def embedding(self) -> Array:
        """float32 [N, width]: the state of the last frame scored."""
        return self.previous_embedding.cpu().numpy().copy()

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of its tensors by name."""
        return {name: tensor.to("cpu", copy=True) for name, tensor in self._tensors().items()}

    def from_state_dict(self, tensors: dict[str, Tensor]) -> ProgressNetState:
        """The memory of these tensors, on the device of this one."""
        return replace(self, **{name: tensor.to(self.carried_potential.device) for name, tensor in tensors.items()})

    def _tensors(self) -> dict[str, Tensor]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}
