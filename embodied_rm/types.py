"""The nouns that travel between the packages: frozen, validated, one layout (uint8 [..., V, H, W, 3])."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True, kw_only=True)
class Subtask:
    """One annotated sub-task of an episode: frames `start` (included) to `end` (excluded)."""

    name: str
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise UserError(f"step {self.name!r} must have 0 <= start < end, got start={self.start}, end={self.end}")


@dataclass(frozen=True, kw_only=True)
class Views:
    """What the cameras of N environments show at one moment."""

    names: tuple[str, ...]
    """View names, one per entry of the V axis."""
    frames: Frames | Tensor
    """uint8 [N, V, H, W, 3]; images drawn on a device may stay there, as a tensor."""
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
        """The views of the environments in `index` only."""
        present = None if self.present is None else self.present[index]
        return Views(names=self.names, frames=self.frames[index], present=present)


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One recorded trial: synchronised views, an instruction, and what is known about its progress."""

    name: str
    """Unique in its dataset, for messages and reports, e.g. "episode_000012"."""
    views: Mapping[str, Frames]
    """View name -> uint8 [T, H, W, 3]; every view has the same T."""
    instruction: str
    fps: float
    subtasks: tuple[Subtask, ...] = ()
    """Annotated sub-tasks in order; empty when nobody annotated them."""
    success: bool | None = None
    """Whether the task was done at the last frame; None: unknown."""
    progress: Array | None = None
    """float32 [T] in [0, 1]: true step progress (simulator), None when unknown."""
    state: Array | None = None
    """float32 [T, S]: robot state or policy observation."""
    action: Array | None = None
    """float32 [T, A]."""
    predictions: RewardOutput | None = None
    """What a judge said of its T frames; None: none was asked."""
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
        for previous, current in zip(self.subtasks, self.subtasks[1:], strict=False):
            if current.start < previous.end:
                raise UserError(f"{self.name}: step {current.name!r} starts before {previous.name!r} ends")
        if self.subtasks and self.subtasks[-1].end > len(self):
            raise UserError(f"{self.name}: step {self.subtasks[-1].name!r} ends after the last frame ({len(self)})")

    def __len__(self) -> int:
        return len(next(iter(self.views.values())))


@dataclass(frozen=True, kw_only=True)
class RewardOutput:
    """A reward model's prediction of N environments at one moment."""

    progress: Array
    """float32 [N] in [0, 1]: the fused potential. Where not `valid`: the previous potential, carried."""
    valid: BoolArray
    """bool [N]: False where the model could not score; such items earn nothing and are counted."""
    subtask: IntArray
    """int64 [N]: index of the step the model believes is under way (the last index + 1 is not used); -1 where it knows
    no steps."""
    success: Array
    """float32 [N] in [0, 1]: probability that the task is done now. nan: a model that does not tell."""
    uncertainty: Array
    """float32 [N] >= 0: how wrong the value may be, by the model's own account; an interval needs a factor."""
    ood: Array = None  # type: ignore[assignment]
    """float32 [N] >= 0: out-of-distribution score; above 1 is what the model hardly ever saw where it was calibrated.
    nan (the default): not `valid`, or a model that does not tell."""

    def __post_init__(self) -> None:
        if self.ood is None:
            object.__setattr__(self, "ood", np.full(len(self.progress), np.nan, np.float32))

    def __len__(self) -> int:
        return len(self.progress)
