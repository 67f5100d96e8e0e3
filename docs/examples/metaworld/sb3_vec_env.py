"""A vector environment for Stable-Baselines3 over one without autoreset."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from envs import FloatArray
from stable_baselines3.common.vec_env import VecEnv


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
