"""`ProgressNetState`: the tensors that carry an episode's past to the next prediction, one row per environment."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from embodied_rm.errors import UserError
from embodied_rm.models.reward_model import RewardState, RowIndices
from embodied_rm.models.tensor_state import TensorState
from embodied_rm.types import Array, RewardOutput


@dataclass(frozen=True, kw_only=True)
class ProgressNetState(TensorState):
    """The `RewardState` of `ProgressNet`. Immutable; `take` and `put` return new states."""

    instruction: Tensor  # float [N, width]
    first_embedding: Tensor  # embedding of the first observed frame, float [N, width]
    first_leave_one_out: Tensor  # embeddings of that frame without each of the views, float [N, V, width]
    previous_embedding: Tensor  # embedding of the last scored frame, float [N, width]
    has_observation: Tensor
    """bool [N]: whether a frame was observed; until then the first and previous embeddings are meaningless."""
    carried_potential: Tensor  # potential of the last scored frame, float32 [N]
    expected_error: Tensor  # expected error of that potential, float32 [N]
    success: Tensor  # last success probability, float32 [N]
    subtask: Tensor  # last subtask index, int64 [N]
    goal_embedding: Tensor | None = None  # embedding of the goal image, float [N, width]; None without goals
    reference_embeddings: Tensor | None = None
    """Embeddings of the reference's keyframes, float [N, R, width]; None without references, as are the next three."""
    reference_progress: Tensor | None = None  # progress of the keyframes, float [N, R]
    belief: Tensor | None = None  # probability of each keyframe at the last scored frame, float [N, R]
    max_belief: Tensor | None = None  # largest probability so far of each keyframe and its two neighbors, float [N, R]

    def __len__(self) -> int:
        return len(self.carried_potential)

    def start_rows(self, embedding: Tensor, leave_one_out: Tensor, visible: Tensor) -> ProgressNetState:
        """Return the state where rows without an earlier observation start at this frame."""
        first = {"first_embedding": embedding, "first_leave_one_out": leave_one_out, "previous_embedding": embedding}
        started = self.update_rows(visible & ~self.has_observation, **first)
        return replace(started, has_observation=self.has_observation | visible)

    def to_output(self, valid: Tensor, uncertainty: Array, ood: Array) -> RewardOutput:
        """Return the prediction that this state holds; `uncertainty` 0 and `ood` NaN where not `valid`, [N] each."""
        scored = valid.cpu().numpy()
        return RewardOutput(
            progress=self.potential(),
            valid=scored,
            subtask=self.subtask.cpu().numpy(),
            success=self.success.cpu().numpy(),
            uncertainty=np.where(scored, uncertainty, np.float32(0)),
            ood=np.where(scored, ood, np.float32(np.nan)),
        )

    def put(self, rows: RowIndices, other: RewardState) -> ProgressNetState:
        """Return this state with `rows` replaced by the rows of `other`.

        `UserError` if only one of the two states has goals, or only one has references.
        """
        assert isinstance(other, ProgressNetState)
        for name, label in (("goal_embedding", "goal image"), ("reference_embeddings", "reference")):
            if (getattr(self, name) is None) != (getattr(other, name) is None):
                raise UserError(f"environments of one batch must all have a {label}, or none of them")
        return super().put(rows, other)

    def potential(self) -> Array:
        """float32 [N]: the carried potential."""
        return self.carried_potential.cpu().numpy().copy()

    def embedding(self) -> Array:
        """float32 [N, width]: the embedding of the last scored frame."""
        return self.previous_embedding.cpu().numpy().copy()
