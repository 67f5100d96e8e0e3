"""`DemonstrationState`: what the alignment of N videos carries from frame to frame."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from embodied_rm.models.zero_shot.tracked_views import TrackedViews
from embodied_rm.types import Array


@dataclass(frozen=True, kw_only=True)
class DemonstrationState(TrackedViews):
    """The `RewardState` of `DemonstrationModel`, one row per video. Immutable. Shapes: V views, S keyframes."""

    belief: Tensor  # probability to be at each keyframe, float [N, S]
    coverage: Tensor  # ordered coverage up to each keyframe, float [N, S]
    scene_from: Tensor  # coarse cells of the frame at which the scene was last updated, float [N, V, cells, C]
    moved_from: Tensor  # coarse cells of the frame at which the belief last moved, float [N, V, cells, C]
    scene: Tensor  # scene without what moves, float [N, V, cells, C]
    forward_from: Tensor  # how far the video had come forward when the belief last moved, float [N]
    valid: Tensor  # bool [N]: whether the last frame had a visible view
    progress: Tensor  # progress at the last scored frame, float [N]
    uncertainty: Tensor  # standard deviation of that progress, float [N]
    success: Tensor  # success probability, float [N]
    subtask: Tensor  # subtask index, int64 [N]
    ood: Tensor  # distance to the demonstrations, float [N]

    def __len__(self) -> int:
        return len(self.progress)

    def with_predictions_of(self, other: DemonstrationState) -> DemonstrationState:
        """Return this state, which has perceived a further frame, with the belief and the predictions of another."""
        names = ("belief", "coverage", "forward_from", "progress", "uncertainty", "success", "subtask", "ood")
        return replace(self, **{name: getattr(other, name) for name in names})

    def potential(self) -> Array:
        """float32 [N]: the progress at the last scored frame."""
        return self.progress.numpy().copy()

    def embedding(self) -> Array:
        """float32 [N, D]: the coarse cells of the last frame that looked new."""
        return self.scene_from.flatten(1).numpy().copy()
