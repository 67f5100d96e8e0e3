"""Plays episodes in a vector environment and keeps what its cameras saw."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from embodied_rm.data.track import Track
from embodied_rm.errors import UserError
from embodied_rm.types import BoolArray, Episode, Frames, IntArray

Observations = npt.NDArray[np.float32]
Act = Callable[[Observations, IntArray], npt.NDArray[np.float32]]
"""(observations [N, S], rows whose episode has just begun) -> actions [N, A]."""
Describe = Callable[[int], Mapping[str, str]]
"""Row -> `Episode.meta` of the episode that has just ended there."""


class ViewedVectorEnv(Protocol):
    """A Gymnasium `VectorEnv` with cameras and known steps; it must not reset rows by itself.

    `reset` takes `options={"reset_mask": bool [N]}`. The infos of `reset` and `step` hold, dense over rows:
    `progress` float32 [N] in [0, 1], `stage` int64 [N] (index into `step_names`), `success` bool [N],
    `diverged` bool [N] (the simulation broke down: what follows is no episode).
    """

    metadata: dict[str, Any]
    num_envs: int
    view_names: tuple[str, ...]
    step_names: tuple[str, ...]

    @property
    def instructions(self) -> tuple[str, ...]:
        """The instruction of every row's present episode."""
        ...

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]: ...

    def step(self, actions: Any) -> tuple[Observations, Any, BoolArray, BoolArray, dict[str, Any]]: ...

    def render_views(self, rows: IntArray) -> Frames:
        """uint8 [n, V, H, W, 3]: what the cameras of `rows` show now."""
        ...


class Recorder:
    """Iterate once to play and get episodes as they end; all rows are stepped and filmed together.

    Every row contributes its fixed share of `episodes`, so short episodes are not over-represented. Frames: the one
    after the reset, every `every` control steps, and the terminal one. A frame's `action` is the one taken there
    (at the terminal frame: the last one taken). Steps are the runs of equal `stage`. A diverged episode is dropped,
    counted in `dropped`, and not replaced.
    """

    def __init__(
        self,
        env: ViewedVectorEnv,
        act: Act,
        *,
        episodes: int,
        every: int = 1,
        seed: int | None = None,
        describe: Describe = lambda row: {},
    ) -> None:
        """Raises `UserError` when the environment resets rows by itself, or a count is not positive."""
        mode = env.metadata.get("autoreset_mode")
        if mode is not AutoresetMode.DISABLED:
            raise UserError(f"recording needs an environment with autoreset_mode DISABLED, this one has {mode}")
        for name, value in (("episodes", episodes), ("every", every)):
            if value < 1:
                raise UserError(f"{name} must be >= 1, got {value}")
        self.dropped = 0
        """Episodes that diverged."""
        self.env, self.act, self.every, self.seed, self.describe = env, act, every, seed, describe
        self.fps = float(env.metadata["render_fps"]) / every
        self._left = np.full(env.num_envs, episodes // env.num_envs)
        self._left[: episodes % env.num_envs] += 1
        self._ended = 0
        self._tracks: dict[int, Track] = {}

    def __iter__(self) -> Iterator[Episode]:
        begun = np.ones(self.env.num_envs, np.bool_)
        obs, info = self.env.reset(seed=self.seed)
        self._begin(begun, obs, info)
        while self._tracks:
            actions = self.act(obs, np.flatnonzero(begun))
            for row, track in self._tracks.items():
                track.note_action(actions[row])
            obs, _, terminated, truncated, info = self.env.step(actions)
            done = terminated | truncated | info["diverged"]
            self._film(self._due(done, info["diverged"]), obs, info)
            yield from self._end(np.flatnonzero(done), info)
            begun = done
            if done.any():
                obs, info = self.env.reset(options={"reset_mask": done})
                self._begin(done, obs, info)

    def _begin(self, mask: BoolArray, obs: Observations, info: Mapping[str, Any]) -> None:
        """Open an episode in each row of the mask that still owes one."""
        rows = np.flatnonzero(mask & (self._left > 0))
        instructions = self.env.instructions
        for row in rows:
            self._left[row] -= 1
            self._tracks[int(row)] = Track(int(row), instructions[row])
        self._film(rows, obs, info)

    def _due(self, done: BoolArray, diverged: BoolArray) -> IntArray:
        """The rows to film now."""
        rows = [
            row
            for row, track in self._tracks.items()
            if (done[row] or track.elapsed % self.every == 0) and not diverged[row]
        ]
        return np.array(rows, np.int64)

    def _film(self, rows: IntArray, obs: Observations, info: Mapping[str, Any]) -> None:
        if len(rows) == 0:
            return
        pictures = self.env.render_views(rows)
        for picture, row in zip(pictures, rows, strict=True):
            self._tracks[int(row)].film(picture, obs, info)

    def _end(self, rows: IntArray, info: Mapping[str, Any]) -> Iterator[Episode]:
        for row in rows:
            track = self._tracks.pop(int(row), None)
            if track is None:
                continue
            if info["diverged"][row]:
                self.dropped += 1
                continue
            yield self._episode(track, bool(info["success"][row]), self.describe(int(row)))

    def _episode(self, track: Track, success: bool, text: Mapping[str, str]) -> Episode:
        self._ended += 1
        name, views = f"episode_{self._ended - 1:06d}", self.env.view_names
        return track.episode(name, views, self.env.step_names, fps=self.fps, success=success, text=text)
