"""`ZeroShotState`: what N videos carry from frame to frame."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from embodied_rm.models.tensor_state import TensorState
from embodied_rm.types import Array


@dataclass(frozen=True, kw_only=True)
class ZeroShotState(TensorState):
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

    def potential(self) -> Array:
        """float32 [N]: the progress at the last scored frame."""
        return self.progress.numpy().copy()

    def embedding(self) -> Array:
        """float32 [N, D]: the recurrent state, averaged over the views."""
        return self.hidden.mean(dim=1).numpy().copy()
