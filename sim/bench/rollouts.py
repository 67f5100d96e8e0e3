"""The rollouts that are timed: every step of every environment with a picture of every view."""

from __future__ import annotations

import copy
import resource
import time
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

from sim.vec_env import TabletopVecEnv

WARM_UP = 2
"""Steps that are not timed: first pictures are slower."""


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """What is played."""

    task: str = "lift_cube"
    num_envs: int = 64
    views: tuple[str, ...] = ("front", "wrist")
    image_size: int = 64
    backend: str = "batch"
    device: str = "cpu"


@dataclass(frozen=True, kw_only=True)
class Speed:
    """What came of it."""

    env_steps_per_s: float
    memory_mib: float
    """Largest resident memory of this process and, of those that it waited for, the largest."""


def ours(rollout: Rollout, steps: int, *, pictures: bool = True) -> Speed:
    """`TabletopVecEnv`, with pictures after every step, left where they are drawn, unless none are wanted."""
    env = TabletopVecEnv(
        rollout.task,
        rollout.num_envs,
        views=rollout.views,
        image_size=rollout.image_size,
        backend=rollout.backend,
        device=rollout.device,
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    env.reset(seed=0)
    rng = np.random.default_rng(0)

    def step() -> None:
        env.step(rng.uniform(-1, 1, (rollout.num_envs, 4)).astype(np.float32))
        if pictures:
            env.render_tensor()

    speed = _timed(step, steps, rollout.num_envs)
    env.close()
    return speed


def gymnasium_async(rollout: Rollout, steps: int, *, lean: bool) -> Speed:
    """Gymnasium's `AsyncVectorEnv`, a process an environment, each with a `mujoco.Renderer`: as it comes, with a
    lamp as it comes, or `lean`: with shadows and antialiasing off."""
    # Not forked: the environment that it makes to learn the spaces leaves OpenGL behind.
    env = AsyncVectorEnv([lambda: Pictured(rollout, lean)] * rollout.num_envs, context="spawn")
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    speed = _timed(
        lambda: env.step(rng.uniform(-1, 1, (rollout.num_envs, 4)).astype(np.float32)), steps, rollout.num_envs
    )
    env.close()
    return speed


class Pictured(gym.Env[dict[str, Any], np.ndarray]):
    """One world of the task as a plain environment whose observation holds the pictures."""

    def __init__(self, rollout: Rollout, lean: bool) -> None:
        self._worlds = TabletopVecEnv(
            rollout.task, 1, views=rollout.views, threads=1, autoreset_mode=AutoresetMode.DISABLED
        )
        self._views, size = rollout.views, rollout.image_size
        model = copy.copy(self._worlds.model)
        # Lamps cast shadows unless told otherwise; ours is told, which is part of what is compared.
        model.light_castshadow[:] = not lean
        if lean:
            model.vis.quality.shadowsize = model.vis.quality.offsamples = 0
        self._renderer = mujoco.Renderer(model, size, size)
        if lean:
            for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
                self._renderer.scene.flags[flag] = 0
        self._data = mujoco.MjData(model)
        pictures = gym.spaces.Box(0, 255, (len(rollout.views), size, size, 3), np.uint8)
        state = self._worlds.single_observation_space
        self.observation_space = gym.spaces.Dict({"state": state, "pictures": pictures})
        self.action_space = self._worlds.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        obs, _ = self._worlds.reset(seed=seed)
        return self._observe(obs), {}

    def step(self, action: np.ndarray) -> Any:
        obs, reward, terminated, truncated, _ = self._worlds.step(action[None])
        return self._observe(obs), float(reward[0]), bool(terminated[0]), bool(truncated[0]), {}

    def close(self) -> None:
        self._renderer.close()
        self._worlds.close()

    def _observe(self, obs: np.ndarray) -> dict[str, Any]:
        return {"state": obs[0], "pictures": np.stack([self._picture(view) for view in self._views])}

    def _picture(self, view: str) -> np.ndarray:
        qpos, mocap_pos, mocap_quat = self._worlds.physics_state()
        self._data.qpos[:], self._data.mocap_pos[:], self._data.mocap_quat[:] = qpos[0], mocap_pos[0], mocap_quat[0]
        mujoco.mj_kinematics(self._worlds.model, self._data)
        mujoco.mj_camlight(self._worlds.model, self._data)
        self._renderer.update_scene(self._data, view)
        return self._renderer.render()


def _timed(step: Any, steps: int, num_envs: int) -> Speed:
    for _ in range(WARM_UP):
        step()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    seconds = time.perf_counter() - start
    kib = sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return Speed(env_steps_per_s=steps * num_envs / seconds, memory_mib=kib / 1024)
