"""`ZeroShotState`: what N videos carry from frame to frame."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from embodied_rm.models.zero_shot.tracked_views import TrackedViews
from embodied_rm.types import Array


@dataclass(frozen=True, kw_only=True)
class ZeroShotState(TrackedViews):
    """The `RewardState` of `ZeroShotModel`, one row per video. Immutable. Shapes: V views that a row may have."""

    tokens: Tensor  # of the instruction, float [N, L, D]
    token_mask: Tensor  # bool [N, L]
    match: Tensor  # standardized match of sentence and first frame, float [N, V]
    valid: Tensor  # bool [N]: whether the last frame had a visible view
    progress: Tensor  # at the last scored frame, float [N]
    uncertainty: Tensor  # of that progress, float [N]
    success: Tensor  # success probability, float [N]
    ood: Tensor  # out-of-distribution score of the last frame, the mean of its views, float [N]

    def __len__(self) -> int:
        return len(self.progress)

    def potential(self) -> Array:
        """float32 [N]: the progress at the last scored frame."""
        return self.progress.numpy().copy()

    def embedding(self) -> Array:
        """float32 [N, D]: the recurrent state, averaged over the views."""
        return self.hidden.mean(dim=1).numpy().copy()
