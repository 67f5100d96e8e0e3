"""Buffer of the current episode of one environment, filled frame by frame."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from embodied_rm.types import Array, Episode, Frames, Subtask, equal_runs


@dataclass
class EpisodeBuffer:
    """The frames and columns recorded so far."""

    env_id: int
    instruction: str
    frames: list[Frames] = field(default_factory=list)
    state: list[Array] = field(default_factory=list)
    action: list[Array] = field(default_factory=list)
    progress: list[np.float32] = field(default_factory=list)
    subtask: list[int] = field(default_factory=list)
    last_action: Array | None = None  # the most recent action
    elapsed_steps: int = 0  # control steps since the reset
    last_recorded_step: int = -1  # control steps at the most recent frame

    def add_action(self, action: npt.NDArray[Any]) -> None:
        """Record an action: the first one after each frame, and the most recent one."""
        self.last_action = action.astype(np.float32)
        if len(self.action) < len(self.frames):
            self.action.append(self.last_action)
        self.elapsed_steps += 1

    def add_frame(self, frame: Frames, obs: Array, info: Mapping[str, Any]) -> None:
        """Record uint8 [V, H, W, 3], with observations [N, S] and infos of all environments.

        Progress and subtasks are recorded if the infos have them.
        """
        self.frames.append(frame)
        self.state.append(obs[self.env_id].copy())
        if "progress" in info:
            self.progress.append(info["progress"][self.env_id])
        if "subtask" in info:
            self.subtask.append(int(info["subtask"][self.env_id]))
        self.last_recorded_step = self.elapsed_steps

    def to_episode(self, index: int, env: Any, *, fps: float, success: bool, metadata: Mapping[str, str]) -> Episode:
        """Build the episode, after one action or more; with subtasks, the environment has `subtask_names`."""
        frames = np.stack(self.frames, axis=1)  # [V, T, H, W, 3]: each view contiguous
        actions = self.action if len(self.action) == len(self.frames) else [*self.action, self.last_action]
        return Episode(
            name=f"episode_{index:06d}",
            views=dict(zip(env.view_names, frames, strict=True)),
            instruction=self.instruction,
            fps=fps,
            subtasks=subtasks_from_indices(self.subtask, env.subtask_names) if self.subtask else (),
            success=success,
            progress=np.array(self.progress, np.float32) if self.progress else None,
            state=np.array(self.state, np.float32),
            action=np.array(actions, np.float32),
            metadata=dict(metadata),
        )


def subtasks_from_indices(subtask_indices: list[int], subtask_names: tuple[str, ...]) -> tuple[Subtask, ...]:
    """Return one subtask per run of equal indices; an index that recurs later starts another subtask."""
    runs = equal_runs(subtask_indices)
    return tuple(Subtask(name=subtask_names[index], start=start, end=end) for index, start, end in runs)
