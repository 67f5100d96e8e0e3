"""Play episodes in a vector environment and record the images of its cameras."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from embodied_rm.data.episode_buffer import EpisodeBuffer
from embodied_rm.errors import UserError
from embodied_rm.types import BoolArray, Episode, Frames, IntArray

Observations = npt.NDArray[np.float32]
PolicyFn = Callable[[Observations, IntArray], npt.NDArray[np.float32]]
"""(observations [N, S], indices of environments whose episode has just started) -> actions [N, A]."""
MetadataFn = Callable[[int], Mapping[str, str]]
"""Environment index -> `Episode.metadata` of the episode that has just ended there."""


class VisionVectorEnv(Protocol):
    """A Gymnasium `VectorEnv` with cameras and known subtasks, with autoreset disabled.

    `reset` takes `options={"reset_mask": bool [N]}`. The infos of `reset` and `step` are dense arrays: `progress`
    float32 [N] in [0, 1], `subtask` int64 [N] (index into `subtask_names`), `success` bool [N], `diverged` bool [N]
    (the simulation diverged and the episode is not valid).
    """

    metadata: dict[str, Any]
    num_envs: int
    view_names: tuple[str, ...]
    subtask_names: tuple[str, ...]

    @property
    def instructions(self) -> tuple[str, ...]:
        """The instruction of the current episode, per environment."""
        ...

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]: ...

    def step(self, actions: Any) -> tuple[Observations, Any, BoolArray, BoolArray, dict[str, Any]]: ...

    def render_views(self, env_ids: IntArray) -> Frames:
        """Render uint8 [n, V, H, W, 3] images of some environments."""
        ...


class EpisodeRecorder:
    """Iterate once to play and record episodes. All environments are stepped and recorded together.

    Each environment records a fixed number of the `num_episodes` episodes, so that short episodes are not
    over-represented. Recorded frames are the one after the reset, every `frame_stride`-th control step, and the last.
    The action of a frame is the one taken there (for the last frame, the last action). Subtasks are runs of equal
    `subtask` infos. A diverged episode is dropped, counted in `num_diverged`, and not replaced.
    """

    def __init__(
        self,
        env: VisionVectorEnv,
        policy: PolicyFn,
        *,
        num_episodes: int,
        frame_stride: int = 1,
        seed: int | None = None,
        metadata_fn: MetadataFn = lambda env_id: {},
    ) -> None:
        mode = env.metadata.get("autoreset_mode")
        if mode is not AutoresetMode.DISABLED:
            raise UserError(f"recording needs an environment with autoreset_mode DISABLED, this one has {mode}")
        for name, value in (("num_episodes", num_episodes), ("frame_stride", frame_stride)):
            if value < 1:
                raise UserError(f"{name} must be >= 1, got {value}")
        self.num_diverged = 0
        """Number of diverged episodes."""
        self.env, self.policy, self.seed, self.metadata_fn = env, policy, seed, metadata_fn
        self.frame_stride = frame_stride
        self.fps = float(env.metadata["render_fps"]) / frame_stride
        self._remaining = np.full(env.num_envs, num_episodes // env.num_envs)
        self._remaining[: num_episodes % env.num_envs] += 1
        self._num_finished = 0
        self._buffers: dict[int, EpisodeBuffer] = {}

    def __iter__(self) -> Iterator[Episode]:
        reset_mask = np.ones(self.env.num_envs, np.bool_)
        obs, info = self.env.reset(seed=self.seed)
        self._start_episodes(reset_mask, obs, info)
        while self._buffers:
            actions = self.policy(obs, np.flatnonzero(reset_mask))
            for env_id, buffer in self._buffers.items():
                buffer.add_action(actions[env_id])
            obs, _, terminated, truncated, info = self.env.step(actions)
            done = terminated | truncated | info["diverged"]
            self._record_frames(self._select_due(done, info["diverged"]), obs, info)
            yield from self._finish_episodes(np.flatnonzero(done), info)
            reset_mask = done
            if done.any():
                obs, info = self.env.reset(options={"reset_mask": done})
                self._start_episodes(done, obs, info)

    def _start_episodes(self, reset_mask: BoolArray, obs: Observations, info: Mapping[str, Any]) -> None:
        """Start an episode in each environment of the mask that still has episodes to record."""
        env_ids = np.flatnonzero(reset_mask & (self._remaining > 0))
        instructions = self.env.instructions
        for env_id in env_ids:
            self._remaining[env_id] -= 1
            self._buffers[int(env_id)] = EpisodeBuffer(int(env_id), instructions[env_id])
        self._record_frames(env_ids, obs, info)

    def _select_due(self, done: BoolArray, diverged: BoolArray) -> IntArray:
        """Environments to record now."""
        steps = {env_id: buffer.elapsed_steps for env_id, buffer in self._buffers.items() if not diverged[env_id]}
        return np.array([i for i, count in steps.items() if done[i] or count % self.frame_stride == 0], np.int64)

    def _record_frames(self, env_ids: IntArray, obs: Observations, info: Mapping[str, Any]) -> None:
        if len(env_ids) == 0:
            return
        frames = self.env.render_views(env_ids)
        for frame, env_id in zip(frames, env_ids, strict=True):
            self._buffers[int(env_id)].add_frame(frame, obs, info)

    def _finish_episodes(self, env_ids: IntArray, info: Mapping[str, Any]) -> Iterator[Episode]:
        for env_id in env_ids:
            buffer = self._buffers.pop(int(env_id), None)
            if buffer is None:
                continue
            if info["diverged"][env_id]:
                self.num_diverged += 1
                continue
            success, metadata = bool(info["success"][env_id]), self.metadata_fn(int(env_id))
            self._num_finished += 1
            index = self._num_finished - 1
            yield buffer.to_episode(index, self.env, fps=self.fps, success=success, metadata=metadata)


REQUIRED_ATTRIBUTES = ("view_names", "instructions", "render_views")
EpisodeCallback = Callable[[Episode], None]  # receives each recorded episode


class RecordEpisodes(gym.vector.VectorWrapper):
    """Records the first `num_recorded` environments of a vector environment, which is otherwise unchanged.

    Recorded frames are the one after a reset, every `frame_stride`-th control step, and the last one before the next
    reset. An episode lasts until its environment is reset, even after success. Success is that of the simulator, and so
    are progress and subtasks if the infos have them. Images that the player renders are reused. Diverged episodes, and
    episodes that were running at `restore` or a reset of all environments, are not recorded.
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
        if not options:
            self._buffers.clear()
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

    def restore_rows(self, rows: IntArray, states: Sequence[Mapping[str, npt.NDArray[Any]]]) -> Any:
        """Begin episodes in states of others; these episodes are not recorded."""
        for row in rows.tolist():
            self._buffers.pop(row, None)
            self._rendered.pop(row, None)
        return self.env.restore_rows(rows, states)  # type: ignore[attr-defined]

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
