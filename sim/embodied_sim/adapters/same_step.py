"""Shared by the adapters: steps with the final observations and infos of rows that were reset within the step."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from embodied_sim.sim_errors import SimError

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class EnvTransition:
    """One step of N rows; every array owns its memory."""

    observation: npt.NDArray[np.float32]
    """[N, D]: input of the next action; for ended episodes, the first observation of the next one."""
    final_observation: npt.NDArray[np.float32]  # [N, D]: the true next observation, before any reset
    reward: npt.NDArray[np.float32]  # [N]; 0 for invalid transitions, because these libraries cannot skip any
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]  # [N]: ended by the time limit, not `terminated`
    infos: Mapping[str, Array]  # name -> [N], before any reset

    @property
    def done(self) -> npt.NDArray[np.bool_]:
        """Return whether the episodes ended, bool [N]."""
        return self.terminated | self.truncated


def check_autoreset_mode(env: VectorEnv[Any, Any, Any]) -> None:
    """Raise `SimError` unless the environment has SAME_STEP autoreset."""
    mode = env.metadata.get("autoreset_mode")
    if mode is not AutoresetMode.SAME_STEP:
        raise SimError(f"the adapter needs an environment with autoreset_mode={AutoresetMode.SAME_STEP}, got {mode}")


def reset_env(env: VectorEnv[Any, Any, Any], seed: int | None) -> npt.NDArray[np.float32]:
    """Start an episode in every row and return the observations [N, D]."""
    observation, _ = env.reset(seed=seed)
    return np.array(observation, np.float32)


def step_env(env: VectorEnv[Any, Any, Any], actions: Array) -> EnvTransition:
    """Step every row. Raises `SimError` if the infos have no dense `final_obs`."""
    raw_observation, reward, terminated, truncated, infos = env.step(actions)
    observation, final_observation = np.array(raw_observation, np.float32), infos.get("final_obs")
    if not isinstance(final_observation, np.ndarray) or final_observation.shape != observation.shape:
        expected, shape = list(observation.shape), getattr(final_observation, "shape", None)
        raise SimError(f"infos['final_obs'] must hold every row, {expected}, got {shape and list(shape)}")
    valid = infos.get("valid_transition", np.ones(len(observation), np.bool_))
    return EnvTransition(
        observation=observation,
        final_observation=np.array(final_observation, np.float32),
        reward=np.where(valid, reward, 0.0).astype(np.float32),
        terminated=np.array(terminated, np.bool_),
        truncated=np.array(truncated & ~terminated, np.bool_),
        infos=_infos_before_reset(infos, len(observation)),
    )


def _infos_before_reset(infos: Mapping[str, Any], num_envs: int) -> dict[str, Array]:
    """Return the infos with one value per row; `final_info` replaces values after a reset."""
    merged = {**infos, **infos.get("final_info", {})}
    return {
        name: values.copy()
        for name, values in merged.items()
        if isinstance(values, np.ndarray) and values.shape == (num_envs,) and not name.startswith("_")
    }
