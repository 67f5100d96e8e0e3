"""Meta-World's tasks as Gymnasium environments, and a vector of them for Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from scene import EVERY, Scene
from stable_baselines3.common.vec_env import VecEnv

LIMIT = 80
"""Actions an episode."""
SIZE = 39
"""Numbers of Meta-World's observation."""
Floats = npt.NDArray[np.float32]


class World(gym.Env):
    """A task with fifty goals. It pays nothing and never ends but by time: infos hold Meta-World's `success`."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (SIZE,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (4,), np.float32)

    def __init__(self, task: str, goals: int) -> None:
        """`goals`: the seed that decides them."""
        self.scene = Scene(task, goals)
        self.raw: npt.NDArray[np.float64] = np.zeros(39)
        """What Meta-World's experts look at."""
        self._time = 0

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """Begin at any goal, or at `options["goal"]`."""
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(len(self.scene.goals)))
        self.raw, self._time = self.scene.reset((options or {}).get("goal", drawn), self.np_random), 0
        return self.raw.astype(np.float32), {"success": False}

    def step(self, action: Any) -> Any:
        """Hold an action."""
        success = False
        for _ in range(EVERY):
            self.raw, _, _, _, info = self.scene.env.step(np.clip(action, -1, 1))
            success = bool(info["success"])
        self._time += 1
        return self.raw.astype(np.float32), 0.0, False, self._time >= LIMIT, {"success": success}

    def close(self) -> None:
        """Free the renderer, which cannot be freed when Python ends."""
        self.scene.close()


def make_worlds(task: str, count: int, goals: int) -> SyncVectorEnv:
    """Worlds whose ended rows whoever steps them resets."""
    return SyncVectorEnv([lambda: World(task, goals)] * count, autoreset_mode=AutoresetMode.DISABLED)


def look(worlds: Any, observation: Any, rows: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[np.uint8]]:
    """What the cameras of some rows show now, for `LearnedReward`."""
    pictures = [worlds.envs[row].unwrapped.scene.look() for row in rows]
    return {view: np.stack([picture[view] for picture in pictures]) for view in pictures[0]}


class Rows(VecEnv):
    """A vector environment with autoreset DISABLED as Stable-Baselines3 wants it: reset within the step."""

    def __init__(self, worlds: Any, seed: int) -> None:
        self.worlds, self._seed = worlds, seed
        self.ended: list[dict[str, Any]] = []
        """Of every episode that ended: success in the eyes of the model, and of the simulator at any time, and the last
        potential."""
        self._succeeded = np.zeros(worlds.num_envs, bool)
        super().__init__(worlds.num_envs, worlds.single_observation_space, worlds.single_action_space)

    def reset(self) -> Floats:
        """Begin an episode in every row."""
        self._succeeded[:] = False
        return np.array(self.worlds.reset(seed=self._seed)[0])

    def step_async(self, actions: npt.NDArray[Any]) -> None:
        """Keep the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> Any:
        """Step every row, and reset those that ended."""
        given, reward, terminated, truncated, infos = self.worlds.step(self._actions)
        observation, done = np.array(given), terminated | truncated
        self._succeeded |= infos["success"]
        rows: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for row in np.flatnonzero(done):
            rows[row] = {"terminal_observation": observation[row], "TimeLimit.truncated": not terminated[row]}
            height = 1.0 if terminated[row] else float(infos["next_potential"][row])
            self.ended.append(
                {"model": bool(terminated[row]), "simulator": bool(self._succeeded[row]), "height": height}
            )
        if done.any():
            self._succeeded[done] = False
            fresh = np.array(self.worlds.reset(options={"reset_mask": done.copy()})[0])
            observation = np.where(done[:, None], fresh, observation)
        return observation, reward.astype(np.float32), done, rows

    def close(self) -> None:
        """Close the worlds."""
        self.worlds.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """The vector environment's own."""
        return [getattr(self.worlds, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refused: nobody needs it."""
        raise NotImplementedError(attr_name)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Refused: nobody needs it."""
        raise NotImplementedError(method_name)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Never."""
        return [False for _ in self._get_indices(indices)]
