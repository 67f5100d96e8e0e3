"""Adapter for Stable-Baselines3 (`pip install embodied-rm[sb3]`)."""

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import VectorEnv
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvStepReturn

from embodied_sim.adapters.same_step import EnvTransition, check_autoreset_mode, reset_env, step_env
from embodied_sim.sim_errors import SimError


class Sb3VecEnv(VecEnv):
    """A Stable-Baselines3 `VecEnv` over a vector environment.

    The info of a row holds the scalars of the environment's infos before any reset, `TimeLimit.truncated`, and
    `is_success`. For ended episodes it holds `terminal_observation` [D], the true last observation.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        """Wrap `env`. Raises `SimError` if it has no SAME_STEP autoreset."""
        check_autoreset_mode(env)
        self.env = env
        self._actions: npt.NDArray[Any] | None = None
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

    def reset(self) -> npt.NDArray[np.float32]:
        """Start an episode in every row, with the last seed given to `seed`, if any."""
        if any(self._options):
            raise SimError(f"reset takes no options here, got {self._options[0]}")
        seed = self._seeds[0]
        self._reset_seeds()
        return reset_env(self.env, seed)

    def step_async(self, actions: npt.NDArray[Any]) -> None:
        """Store the actions [N, A] for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """Step every row; return observations float32 [N, D], rewards float32 [N], dones bool [N], one info per row."""
        assert self._actions is not None, "step_wait before step_async"
        transition, self._actions = step_env(self.env, self._actions), None
        return transition.observation, transition.reward, transition.done, row_infos(transition)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """Return an attribute of the vector environment, or of the innermost one, once per requested row."""
        owner = self.env if hasattr(self.env, attr_name) else self.env.unwrapped
        return [getattr(owner, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Raise `SimError`: the rows are one object."""
        raise SimError(f"{attr_name} cannot be set row by row; set it on the vector environment, .env")

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Raise `SimError`: the rows are one object."""
        raise SimError(f"{method_name} cannot be called row by row; call it on the vector environment, .env")

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper], indices: VecEnvIndices = None) -> list[bool]:
        """Return False: rows are not `gymnasium.Env` objects."""
        return [False for _ in self._get_indices(indices)]


def row_infos(transition: EnvTransition) -> list[dict[str, Any]]:
    """Return one info per row in the format of Stable-Baselines3."""
    columns = {**transition.infos, "TimeLimit.truncated": transition.truncated}
    if "success" in columns:
        columns["is_success"] = columns["success"]
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    infos = [dict(zip(columns, row, strict=True)) for row in rows]
    for row in np.flatnonzero(transition.done):
        infos[row]["terminal_observation"] = transition.final_observation[row]
    return infos
