"""The episode under way in one row of a vector environment, filmed frame by frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from embodied_rm.types import Array, Episode, Frames, Step


@dataclass
class Track:
    """What has been filmed so far, and of what."""

    row: int
    instruction: str
    frames: list[Frames] = field(default_factory=list)
    state: list[Array] = field(default_factory=list)
    action: list[Array] = field(default_factory=list)
    progress: list[np.float32] = field(default_factory=list)
    stage: list[int] = field(default_factory=list)
    latest: Array | None = None
    """The action last taken."""
    elapsed: int = 0
    """Control steps since the reset."""
    filmed: int = -1
    """Control steps at the frame last filmed."""

    def note_action(self, action: npt.NDArray[Any]) -> None:
        """Keep an action that was taken at a filmed frame, and the latest one."""
        self.latest = action.astype(np.float32)
        if len(self.action) < len(self.frames):
            self.action.append(self.latest)
        self.elapsed += 1

    def film(self, picture: Frames, observation: Array, info: Mapping[str, Any]) -> None:
        """Add the frame of now: uint8 [V, H, W, 3]; observation and infos are those of all rows."""
        self.frames.append(picture)
        self.state.append(observation[self.row].copy())
        self.progress.append(info["progress"][self.row])
        self.stage.append(int(info["stage"][self.row]))
        self.filmed = self.elapsed

    def episode(
        self,
        name: str,
        views: Sequence[str],
        step_names: tuple[str, ...],
        *,
        fps: float,
        success: bool,
        text: Mapping[str, str],
    ) -> Episode:
        """All of it. At least one action must have been taken."""
        frames = np.stack(self.frames, axis=1)  # [V, T, H, W, 3]: each view contiguous
        taken = self.action if len(self.action) == len(self.frames) else [*self.action, self.latest]
        return Episode(
            name=name,
            views=dict(zip(views, frames, strict=True)),
            instruction=self.instruction,
            fps=fps,
            steps=runs(self.stage, step_names),
            success=success,
            progress=np.array(self.progress, np.float32),
            state=np.array(self.state, np.float32),
            action=np.array(taken, np.float32),
            meta=dict(text),
        )


def runs(stages: list[int], names: tuple[str, ...]) -> tuple[Step, ...]:
    """The steps of a stage column: one per run of equal stages. A stage taken up again is a step again."""
    column = np.asarray(stages)
    edges = np.concatenate([[0], np.flatnonzero(np.diff(column)) + 1, [len(column)]])
    return tuple(Step(name=names[column[start]], start=int(start), end=int(end)) for start, end in pairwise(edges))
