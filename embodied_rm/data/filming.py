"""Films a few rows of a vector environment while somebody else plays it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from embodied_rm.data.track import Track
from embodied_rm.errors import UserError
from embodied_rm.types import Episode, Frames, IntArray

NEEDED = ("view_names", "step_names", "instructions", "render_views")
Take = Callable[[Episode], None]
"""What becomes of a film."""


class Filming(gym.vector.VectorWrapper):
    """The environment as it is, whose first `rows` rows are filmed: the frame after a reset, every `every` control
    steps, and the last one before the next reset. Each film, named by its number, goes to `take`.

    An episode lasts until its row is reset, whoever thinks it over; what is known of its frames (progress, steps,
    whether it succeeded) is what the simulator says. Pictures that others draw of the filmed rows are not drawn again.
    Diverged episodes, and those that were under way at `restore`, are not filmed. Raises `UserError` for an environment
    that cannot show itself.
    """

    def __init__(self, env: gym.vector.VectorEnv, take: Take, *, rows: int, every: int, first: int = 0) -> None:
        """`first`: the number of the first film."""
        super().__init__(env)
        missing = [name for name in NEEDED if not hasattr(env, name)]
        if missing:
            raise UserError(f"{type(env).__name__} lacks {', '.join(missing)}, which filming needs")
        for name, value in (("rows", rows), ("every", every)):
            if value < 1:
                raise UserError(f"{name} must be >= 1, got {value}")
        self._take, self._every, self._next = take, every, first
        self._rows = min(rows, env.num_envs)
        self._tracks: dict[int, Track] = {}
        self._drawn: dict[int, Frames] = {}
        """Row -> what its cameras show now, where somebody has had it drawn."""
        self._observation: npt.NDArray[np.float32]
        self._infos: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        mask = np.ones(self.num_envs, bool) if not options else np.asarray(options["reset_mask"])
        rows = np.flatnonzero(mask[: self._rows])
        for row in rows:
            self._finish(int(row))
        observation, infos = self.env.reset(seed=seed, options=options)
        self._observation, self._infos = np.array(observation, np.float32), infos
        instructions = self.env.instructions  # type: ignore[attr-defined]
        for row in rows:
            self._drawn.pop(int(row), None)
            self._tracks[int(row)] = Track(int(row), instructions[row])
        self._film(rows)
        return observation, infos

    def step(self, actions: npt.NDArray[Any]) -> Any:
        self._film(np.array([row for row, track in self._tracks.items() if self._due(track)], np.int64))
        for row, track in self._tracks.items():
            track.note_action(actions[row])
        self._drawn.clear()
        result = self.env.step(actions)
        self._observation, self._infos = np.array(result[0], np.float32), result[4]
        for broken in np.flatnonzero(self._infos["diverged"]):
            self._tracks.pop(int(broken), None)
        return result

    def render_views(self, rows: IntArray) -> Frames:
        """What the cameras of `rows` show now."""
        shown: Frames = self.env.render_views(rows)  # type: ignore[attr-defined]
        self._drawn |= {int(row): shown[i] for i, row in enumerate(rows) if row < self._rows}
        return shown

    def restore(self, snapshot: Mapping[str, npt.NDArray[Any]]) -> Any:
        """Go on from what `snapshot` of such an environment gave."""
        self._tracks.clear()
        self._drawn.clear()
        return self.env.restore(snapshot)  # type: ignore[attr-defined]

    def _due(self, track: Track) -> bool:
        return track.elapsed % self._every == 0 and track.filmed < track.elapsed

    def _film(self, rows: IntArray) -> None:
        """Add what these rows show now to their films."""
        missing = np.array([row for row in rows if int(row) not in self._drawn], np.int64)
        if len(missing):
            self.render_views(missing)
        for row in map(int, rows):
            self._tracks[row].film(self._drawn[row].copy(), self._observation, self._infos)

    def _finish(self, row: int) -> None:
        """The film of a row whose episode is over, if one was made and anything happened in it."""
        track = self._tracks.get(row)
        if track is None or not track.elapsed:
            return
        if track.filmed < track.elapsed:
            self._film(np.array([row]))
        fps = float(self.metadata["render_fps"]) / self._every
        success = bool(self._infos["success"][row])
        views, steps = self.view_names, self.step_names
        self._take(track.episode(f"film_{self._next:06d}", views, steps, fps=fps, success=success, text={}))
        self._next += 1
