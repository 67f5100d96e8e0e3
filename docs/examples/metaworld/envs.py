"""Meta-World's tasks as Gymnasium environments, and a vector environment for Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from scene import ACTION_REPEAT, MetaWorldScene
from stable_baselines3.common.vec_env import VecEnv

MAX_EPISODE_STEPS = 80
"""Actions per episode."""
OBS_DIM = 39
"""Size of Meta-World's observation."""
FloatArray = npt.NDArray[np.float32]


class MetaWorldEnv(gym.Env):
    """A task with fifty goals, zero reward and a time limit; infos hold Meta-World's `success`."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (OBS_DIM,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (4,), np.float32)

    def __init__(self, task: str, goal_seed: int) -> None:
        """Create the task; `goal_seed` determines its goals."""
        self.scene = MetaWorldScene(task, goal_seed)
        self.raw_observation: npt.NDArray[np.float64] = np.zeros(39)
        """Observation of Meta-World's experts."""
        self._elapsed_steps = 0

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """Start at a random goal, or at `options["goal"]`."""
        super().reset(seed=seed)
        goal_index = int(self.np_random.integers(len(self.scene.goals)))
        self.raw_observation = self.scene.reset((options or {}).get("goal", goal_index), self.np_random)
        self._elapsed_steps = 0
        return self.raw_observation.astype(np.float32), {"success": False}

    def step(self, action: Any) -> Any:
        """Apply an action for `ACTION_REPEAT` steps."""
        success = False
        for _ in range(ACTION_REPEAT):
            self.raw_observation, _, _, _, info = self.scene.env.step(np.clip(action, -1, 1))
            success = bool(info["success"])
        self._elapsed_steps += 1
        return (
            self.raw_observation.astype(np.float32),
            0.0,
            False,
            self._elapsed_steps >= MAX_EPISODE_STEPS,
            {"success": success},
        )

    def close(self) -> None:
        """Free the renderer; it cannot be freed at interpreter exit."""
        self.scene.close()


def make_envs(task: str, num_envs: int, goal_seed: int) -> SyncVectorEnv:
    """Create a vector environment without autoreset."""
    return SyncVectorEnv([lambda: MetaWorldEnv(task, goal_seed)] * num_envs, autoreset_mode=AutoresetMode.DISABLED)


def render_views(vec_env: Any, observation: Any, rows: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[np.uint8]]:
    """Render the current views of some rows, for `LearnedReward`."""
    images = [vec_env.envs[row].unwrapped.scene.render_views() for row in rows]
    return {view: np.stack([image[view] for image in images]) for view in images[0]}


class ResettingVecEnv(VecEnv):
    """Stable-Baselines3 `VecEnv` over a vector environment with autoreset DISABLED; resets rows within the step."""

    def __init__(self, envs: Any, seed: int) -> None:
        self.envs, self._seed = envs, seed
        self.finished_episodes: list[dict[str, Any]] = []
        """Predicted success, simulator success (at any time) and final potential of every ended episode."""
        self._succeeded = np.zeros(envs.num_envs, bool)
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self) -> FloatArray:
        """Start an episode in every row."""
        self._succeeded[:] = False
        return np.array(self.envs.reset(seed=self._seed)[0])

    def step_async(self, actions: npt.NDArray[Any]) -> None:
        """Store the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> Any:
        """Step every row and reset those that ended."""
        raw_observation, reward, terminated, truncated, infos = self.envs.step(self._actions)
        observation, done = np.array(raw_observation), terminated | truncated
        self._succeeded |= infos["success"]
        row_infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for row in np.flatnonzero(done):
            row_infos[row] = {"terminal_observation": observation[row], "TimeLimit.truncated": not terminated[row]}
            final_potential = 1.0 if terminated[row] else float(infos["next_potential"][row])
            self.finished_episodes.append(
                {
                    "predicted_success": bool(terminated[row]),
                    "simulator_success": bool(self._succeeded[row]),
                    "final_potential": final_potential,
                }
            )
        if done.any():
            self._succeeded[done] = False
            reset_observation = np.array(self.envs.reset(options={"reset_mask": done.copy()})[0])
            observation = np.where(done[:, None], reset_observation, observation)
        return observation, reward.astype(np.float32), done, row_infos

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of the vector environment, once per row."""
        return [getattr(self.envs, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Not supported."""
        raise NotImplementedError(attr_name)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Not supported."""
        raise NotImplementedError(method_name)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Return False."""
        return [False for _ in self._get_indices(indices)]
