"""Data types that the packages exchange: frozen, validated, with images in one layout (uint8 [..., V, H, W, 3])."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from embodied_rm.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

Array = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
Frames = npt.NDArray[np.uint8]
SUBGOAL_SEPARATOR = "; then "  # text between two subgoals of an instruction


@dataclass(frozen=True, kw_only=True)
class Subtask:
    """One annotated subtask of an episode: frames `start` (included) to `end` (excluded)."""

    name: str
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise UserError(f"subtask {self.name!r} must have 0 <= start < end, got start={self.start}, end={self.end}")


def equal_runs(values: npt.ArrayLike) -> list[tuple[int, int, int]]:
    """Return (value, start, end) of the runs of equal values, int [T]; the end is excluded."""
    indices = np.asarray(values)
    edges = [0, *(np.flatnonzero(np.diff(indices)) + 1).tolist(), len(indices)]
    return [(int(indices[start]), start, end) for start, end in pairwise(edges) if end > start]


@dataclass(frozen=True, kw_only=True)
class Views:
    """Camera images of N environments at one timestep."""

    names: tuple[str, ...]
    """View names, one per entry of the V axis."""
    frames: Frames | Tensor
    """uint8 [N, V, H, W, 3]; images rendered on a device may stay there as a tensor."""
    present: BoolArray | None = None
    """bool [N, V]; None: all present. Pixels of an absent view are never read."""

    def __post_init__(self) -> None:
        frames = self.frames
        dtype = str(frames.dtype).removeprefix("torch.")
        if dtype != "uint8" or frames.ndim != 5 or frames.shape[1] != len(self.names) or frames.shape[4] != 3:
            raise UserError(
                f"views must be uint8 [N, V, H, W, 3] with V = {len(self.names)} ({', '.join(self.names)}), "
                f"got {dtype} {list(frames.shape)}"
            )
        if len(set(self.names)) != len(self.names):
            raise UserError(f"view names must differ, got {', '.join(self.names)}")
        if self.present is not None and self.present.shape != frames.shape[:2]:
            raise UserError(f"present must be bool {list(frames.shape[:2])}, got {list(self.present.shape)}")

    def __len__(self) -> int:
        return self.frames.shape[0]

    def select(self, index: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Views:
        """Select environments.

        Args:
            index: int64 indices or bool [N] mask of the environments to keep.

        Returns:
            The views of those environments, in that order.
        """
        present = None if self.present is None else self.present[index]
        return Views(names=self.names, frames=self.frames[index], present=present)

    def select_views(self, names: Sequence[str]) -> Views:
        """Select views of all environments.

        Args:
            names: names of the views to keep; those that are not here are left out.

        Returns:
            These views, in the order of `self.names`.
        """
        columns = [column for column, name in enumerate(self.names) if name in names]
        present = None if self.present is None else self.present[:, columns]
        return Views(names=tuple(self.names[c] for c in columns), frames=self.frames[:, columns], present=present)


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One recorded trial: synchronized views, an instruction, and the known progress and outcome."""

    name: str
    """Unique in its dataset, e.g. "episode_000012"."""
    views: Mapping[str, Frames]
    """View name -> uint8 [T, H, W, 3]; all views have the same T."""
    instruction: str
    fps: float
    subtasks: tuple[Subtask, ...] = ()
    """Annotated subtasks in order; empty without annotation."""
    success: bool | None = None
    """Whether the task is done at the last frame; None: unknown."""
    progress: Array | None = None
    """float32 [T] in [0, 1]: true task progress (from a simulator); None: unknown."""
    state: Array | None = None
    """float32 [T, S]: robot state or policy observation."""
    action: Array | None = None
    """float32 [T, A]."""
    predictions: RewardOutput | None = None
    """Stored predictions of a reward model for the T frames; None: not scored."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Free text columns, e.g. {"task": "open_drawer", "outcome": "drop"}."""

    def __post_init__(self) -> None:
        lengths = {name: len(frames) for name, frames in self.views.items()}
        if not lengths:
            raise UserError(f"{self.name}: an episode needs at least one view")
        if len(set(lengths.values())) != 1:
            raise UserError(f"{self.name}: views must have the same number of frames, got {lengths}")
        if len(self) == 0:
            raise UserError(f"{self.name}: an episode needs at least one frame")
        for name, frames in self.views.items():
            if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[3] != 3:
                raise UserError(
                    f"{self.name}: view {name!r} must be uint8 [T, H, W, 3], got {frames.dtype} {list(frames.shape)}"
                )
        if not self.fps > 0:
            raise UserError(f"{self.name}: fps must be > 0, got {self.fps}")
        for field_name, column in (
            ("progress", self.progress),
            ("state", self.state),
            ("action", self.action),
            ("predictions", self.predictions),
        ):
            if column is not None and len(column) != len(self):
                raise UserError(f"{self.name}: {field_name} has {len(column)} rows, the views have {len(self)} frames")
        if self.progress is not None and not ((self.progress >= 0) & (self.progress <= 1)).all():
            raise UserError(f"{self.name}: progress must be in [0, 1] at every frame")
        for previous, current in zip(self.subtasks, self.subtasks[1:], strict=False):
            if current.start < previous.end:
                raise UserError(f"{self.name}: subtask {current.name!r} starts before {previous.name!r} ends")
        if self.subtasks and self.subtasks[-1].end > len(self):
            raise UserError(f"{self.name}: subtask {self.subtasks[-1].name!r} ends after the last frame ({len(self)})")

    def __len__(self) -> int:
        return len(next(iter(self.views.values())))

    def with_views(self, views: Mapping[str, Frames]) -> Episode:
        """Return the episode with other frames, without the subtasks, columns and predictions of its own ones."""
        return replace(self, views=views, subtasks=(), progress=None, state=None, action=None, predictions=None)


@dataclass(frozen=True, kw_only=True)
class RewardOutput:
    """Prediction of a reward model for N environments at one timestep."""

    progress: Array
    """float32 [N] in [0, 1]: fused potential. Where not `valid`, the previous potential is repeated."""
    valid: BoolArray
    """bool [N]: False where the model could not score; such steps earn no reward and are counted."""
    subtask: IntArray
    """int64 [N]: index of the predicted current subtask; -1 if the model knows no subtasks."""
    success: Array
    """float32 [N] in [0, 1]: probability that the task is done now; nan if the model does not predict success."""
    uncertainty: Array
    """float32 [N] >= 0: expected error of `progress` as predicted by the model; calibration turns it into an interval.
    """
    ood: Array = None  # type: ignore[assignment]
    """float32 [N] >= 0: out-of-distribution score, normalized so that values above 1 are rare in the calibration data.

    nan (the default): not `valid`, or the model has no such score.
    """

    def __post_init__(self) -> None:
        if self.ood is None:
            object.__setattr__(self, "ood", np.full(len(self.progress), np.nan, np.float32))

    def __len__(self) -> int:
        return len(self.progress)
