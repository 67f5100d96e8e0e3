"""Timed rollouts: every step of every environment with an image of every view."""

import copy
import resource
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorEnv

from embodied_sim.vec_env import TabletopVecEnv

WARM_UP_STEPS = 2  # untimed first steps: the first images are slower


@dataclass(frozen=True, kw_only=True)
class RolloutConfig:
    """Settings of a rollout."""

    task: str = "lift_cube"
    num_envs: int = 64
    views: tuple[str, ...] = ("front", "wrist")
    image_size: int = 64
    backend: str = "batch"
    device: str = "cpu"


@dataclass(frozen=True, kw_only=True)
class RolloutSpeed:
    """Speed and memory of a rollout."""

    env_steps_per_s: float
    memory_mib: float  # peak resident memory of this process plus that of its largest child process


def time_tabletop_env(rollout: RolloutConfig, steps: int, *, render_images: bool = True) -> RolloutSpeed:
    """Time a `TabletopVecEnv`; images stay on the device on which they are rendered."""
    options = {name: value for name, value in asdict(rollout).items() if name not in ("task", "num_envs")}
    env = TabletopVecEnv(rollout.task, rollout.num_envs, autoreset_mode=AutoresetMode.SAME_STEP, **options)
    return _time_steps(env, steps, env.render_tensor if render_images else None)


def time_gymnasium_async(rollout: RolloutConfig, steps: int, *, fast_render: bool) -> RolloutSpeed:
    """Time Gymnasium's `AsyncVectorEnv`: one process per environment, each with a `mujoco.Renderer`.

    `fast_render` disables shadows and antialiasing; otherwise the renderer keeps its defaults.
    """
    # Not forked: the environment that Gymnasium creates to read the spaces leaves OpenGL state behind.
    env = AsyncVectorEnv([lambda: ImageEnv(rollout, fast_render)] * rollout.num_envs, context="spawn")
    return _time_steps(env, steps)


class ImageEnv(gym.Env[dict[str, Any], np.ndarray]):
    """One environment of the task whose observation holds the images."""

    def __init__(self, rollout: RolloutConfig, fast_render: bool) -> None:
        mode = AutoresetMode.DISABLED
        self._vec_env = TabletopVecEnv(rollout.task, 1, views=rollout.views, threads=1, autoreset_mode=mode)
        self._views, size = rollout.views, rollout.image_size
        model = copy.copy(self._vec_env.model)
        # Lights cast shadows by default, but not in our scene; this difference is part of the comparison.
        model.light_castshadow[:] = not fast_render
        if fast_render:
            model.vis.quality.shadowsize = model.vis.quality.offsamples = 0
        self._renderer = mujoco.Renderer(model, size, size)
        if fast_render:
            for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
                self._renderer.scene.flags[flag] = 0
        self._data = mujoco.MjData(model)
        images = gym.spaces.Box(0, 255, (len(rollout.views), size, size, 3), np.uint8)
        state = self._vec_env.single_observation_space
        self.observation_space = gym.spaces.Dict({"state": state, "images": images})
        self.action_space = self._vec_env.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        obs, _ = self._vec_env.reset(seed=seed)
        return self._observe(obs), {}

    def step(self, action: np.ndarray) -> Any:
        obs, reward, terminated, truncated, _ = self._vec_env.step(action[None])
        return self._observe(obs), float(reward[0]), bool(terminated[0]), bool(truncated[0]), {}

    def close(self) -> None:
        self._renderer.close()
        self._vec_env.close()

    def _observe(self, obs: np.ndarray) -> dict[str, Any]:
        return {"state": obs[0], "images": np.stack([self._render_view(view) for view in self._views])}

    def _render_view(self, view: str) -> np.ndarray:
        qpos, mocap_pos, mocap_quat = self._vec_env.physics_state()
        self._data.qpos[:], self._data.mocap_pos[:], self._data.mocap_quat[:] = qpos[0], mocap_pos[0], mocap_quat[0]
        mujoco.mj_kinematics(self._vec_env.model, self._data)
        mujoco.mj_camlight(self._vec_env.model, self._data)
        self._renderer.update_scene(self._data, view)
        return self._renderer.render()


def _time_steps(env: VectorEnv[Any, Any, Any], steps: int, render: Callable[[], object] | None = None) -> RolloutSpeed:
    """Time steps with random actions, each followed by `render`; close the environments."""
    env.reset(seed=0)
    rng, start = np.random.default_rng(0), 0.0
    for step in range(WARM_UP_STEPS + steps):
        if step == WARM_UP_STEPS:
            start = time.perf_counter()
        env.step(rng.uniform(-1, 1, (env.num_envs, 4)).astype(np.float32))
        if render is not None:
            render()
    seconds = time.perf_counter() - start
    env.close()
    kib = sum(resource.getrusage(scope).ru_maxrss for scope in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return RolloutSpeed(env_steps_per_s=steps * env.num_envs / seconds, memory_mib=kib / 1024)
