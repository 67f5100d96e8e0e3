"""Wrapper that records some environments of a vector environment while another program plays it."""

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from embodied_rm.data.episode_buffer import EpisodeBuffer
from embodied_rm.errors import UserError
from embodied_rm.types import Episode, Frames, IntArray

REQUIRED_ATTRIBUTES = ("view_names", "subtask_names", "instructions", "render_views")
EpisodeCallback = Callable[[Episode], None]  # receives each recorded episode


class RecordEpisodes(gym.vector.VectorWrapper):
    """Records the first `num_recorded` environments of a vector environment, which is otherwise unchanged.

    Recorded frames are the one after a reset, every `frame_stride`-th control step, and the last one before the next
    reset. An episode lasts until its environment is reset, even after success. Progress, subtasks and success are those
    of the simulator. Images that the player renders are reused. Diverged episodes, and episodes that were running at
    `restore`, are not recorded.
    """

    def __init__(
        self,
        env: gym.vector.VectorEnv,
        on_episode: EpisodeCallback,
        *,
        num_recorded: int,
        frame_stride: int,
        first_index: int = 0,
    ) -> None:
        super().__init__(env)
        missing = [name for name in REQUIRED_ATTRIBUTES if not hasattr(env, name)]
        if missing:
            raise UserError(f"{type(env).__name__} lacks {', '.join(missing)}, which recording needs")
        for name, value in (("num_recorded", num_recorded), ("frame_stride", frame_stride)):
            if value < 1:
                raise UserError(f"{name} must be >= 1, got {value}")
        self._on_episode = on_episode
        self._frame_stride = frame_stride
        self._next_index = first_index
        self._num_recorded = min(num_recorded, env.num_envs)
        self._buffers: dict[int, EpisodeBuffer] = {}
        self._rendered: dict[int, Frames] = {}
        """Environment index -> rendered images of the current step."""
        self._obs: npt.NDArray[np.float32]
        self._infos: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        reset_mask = np.ones(self.num_envs, bool) if not options else np.asarray(options["reset_mask"])
        env_ids = np.flatnonzero(reset_mask[: self._num_recorded])
        for env_id in env_ids:
            self._finish_episode(int(env_id))
        obs, infos = self.env.reset(seed=seed, options=options)
        self._obs, self._infos = np.array(obs, np.float32), infos
        instructions = self.env.instructions  # type: ignore[attr-defined]
        for env_id in env_ids:
            self._rendered.pop(int(env_id), None)
            self._buffers[int(env_id)] = EpisodeBuffer(int(env_id), instructions[env_id])
        self._record_frames(env_ids)
        return obs, infos

    def step(self, actions: npt.NDArray[Any]) -> Any:
        due = [env_id for env_id, buffer in self._buffers.items() if self._is_due(buffer)]
        self._record_frames(np.array(due, np.int64))
        for env_id, buffer in self._buffers.items():
            buffer.add_action(actions[env_id])
        self._rendered.clear()
        result = self.env.step(actions)
        self._obs, self._infos = np.array(result[0], np.float32), result[4]
        for env_id in np.flatnonzero(self._infos["diverged"]).tolist():
            self._buffers.pop(env_id, None)
        return result

    def render_views(self, env_ids: IntArray) -> Frames:
        """Render images of some environments, see `VisionVectorEnv`."""
        frames: Frames = self.env.render_views(env_ids)  # type: ignore[attr-defined]
        self._rendered |= {int(env_id): frames[i] for i, env_id in enumerate(env_ids) if env_id < self._num_recorded}
        return frames

    def restore(self, snapshot: Mapping[str, npt.NDArray[Any]]) -> Any:
        """Restore the state that `snapshot` of such an environment returned."""
        self._buffers.clear()
        self._rendered.clear()
        return self.env.restore(snapshot)  # type: ignore[attr-defined]

    def _is_due(self, buffer: EpisodeBuffer) -> bool:
        return buffer.elapsed_steps % self._frame_stride == 0 and buffer.last_recorded_step < buffer.elapsed_steps

    def _record_frames(self, env_ids: IntArray) -> None:
        """Add the current frame of these environments to their episodes."""
        missing = np.array([env_id for env_id in env_ids if int(env_id) not in self._rendered], np.int64)
        if len(missing):
            self.render_views(missing)
        for env_id in map(int, env_ids):
            self._buffers[env_id].add_frame(self._rendered[env_id].copy(), self._obs, self._infos)

    def _finish_episode(self, env_id: int) -> None:
        """Finish the episode of an environment, if it was recorded and has at least one step."""
        buffer = self._buffers.get(env_id)
        if buffer is None or not buffer.elapsed_steps:
            return
        if buffer.last_recorded_step < buffer.elapsed_steps:
            self._record_frames(np.array([env_id]))
        fps = float(self.metadata["render_fps"]) / self._frame_stride
        success = bool(self._infos["success"][env_id])
        self._on_episode(buffer.to_episode(self._next_index, self, fps=fps, success=success, metadata={}))
        self._next_index += 1
