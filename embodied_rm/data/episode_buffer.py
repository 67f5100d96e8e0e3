"""The episode under way in one row of a vector environment, recorded frame by frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from embodied_rm.types import Array, Episode, Frames, Subtask


@dataclass
class EpisodeBuffer:
    """What has been recorded so far, and of what."""

    env_id: int
    instruction: str
    frames: list[Frames] = field(default_factory=list)
    state: list[Array] = field(default_factory=list)
    action: list[Array] = field(default_factory=list)
    progress: list[np.float32] = field(default_factory=list)
    subtask: list[int] = field(default_factory=list)
    last_action: Array | None = None
    """The action last taken."""
    elapsed_steps: int = 0
    """Control steps since the reset."""
    last_recorded_step: int = -1
    """Control steps at the frame last recorded."""

    def add_action(self, action: npt.NDArray[Any]) -> None:
        """Keep an action that was taken at a recorded frame, and the latest one."""
        self.last_action = action.astype(np.float32)
        if len(self.action) < len(self.frames):
            self.action.append(self.last_action)
        self.elapsed_steps += 1

    def add_frame(self, frame: Frames, obs: Array, info: Mapping[str, Any]) -> None:
        """Add the frame of now: uint8 [V, H, W, 3]; observation and infos are those of all rows."""
        self.frames.append(frame)
        self.state.append(obs[self.env_id].copy())
        self.progress.append(info["progress"][self.env_id])
        self.subtask.append(int(info["subtask"][self.env_id]))
        self.last_recorded_step = self.elapsed_steps

    def to_episode(
        self,
        name: str,
        views: Sequence[str],
        subtask_names: tuple[str, ...],
        *,
        fps: float,
        success: bool,
        metadata: Mapping[str, str],
    ) -> Episode:
        """All of it. At least one action must have been taken."""
        frames = np.stack(self.frames, axis=1)  # [V, T, H, W, 3]: each view contiguous
        actions = self.action if len(self.action) == len(self.frames) else [*self.action, self.last_action]
        return Episode(
            name=name,
            views=dict(zip(views, frames, strict=True)),
            instruction=self.instruction,
            fps=fps,
            subtasks=subtasks_from_indices(self.subtask, subtask_names),
            success=success,
            progress=np.array(self.progress, np.float32),
            state=np.array(self.state, np.float32),
            action=np.array(actions, np.float32),
            metadata=dict(metadata),
        )


def subtasks_from_indices(subtask_indices: list[int], subtask_names: tuple[str, ...]) -> tuple[Subtask, ...]:
    """The steps of a stage column: one per run of equal stages. A stage taken up again is a step again."""
    index_array = np.asarray(subtask_indices)
    edges = np.concatenate([[0], np.flatnonzero(np.diff(index_array)) + 1, [len(index_array)]])
    return tuple(
        Subtask(name=subtask_names[index_array[start]], start=int(start), end=int(end))
        for start, end in pairwise(edges)
    )
