"""A task of robosuite, or of LIBERO, as a Gymnasium environment with cameras.

    env = RobosuiteEnv(robosuite.make("Lift", robots="Panda", use_camera_obs=True, has_renderer=False,
                                      camera_names=["agentview", "robot0_eye_in_hand"]),
                       views={"front": "agentview", "wrist": "robot0_eye_in_hand"})
    env = erm.LearnedReward(env, model, instruction="lift the cube")

robosuite's own `GymWrapper` reports its time limit as a terminal state, and leaves images upside down. Not run with
LIBERO, whose scenes must be downloaded: written to the interface of its version 0.1.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

import gymnasium as gym
import numpy as np
from robosuite import macros

IMAGE_SUFFIX = "_image"
"""End of the name of the observation of a camera, which begins with the name of the camera."""
OPENGL = "opengl"
"""robosuite's name of the convention in which the first row of an image is its lowest."""


class RobosuiteEnv(gym.Env):
    """A Gymnasium environment of one robosuite or LIBERO environment.

    Observations are dictionaries of all entries but the images, which `render_views` returns upright. The infos have
    `success`. The horizon truncates an episode. LIBERO's success terminates it; robosuite's only counts.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, env: Any, views: Mapping[str, str]) -> None:
        """Take an environment.

        Args:
            env: What `robosuite.make` returns, or an `OffScreenRenderEnv` of LIBERO.
            views: View of the reward model -> name of the camera, for example {"front": "agentview"}.

        Raises:
            ValueError: A camera is not among those that the environment draws.
        """
        self.env, self.views = env, dict(views)
        self._task = env if hasattr(env, "_check_success") else env.env  # LIBERO wraps that of robosuite
        observation = self.env.reset()
        cameras = [key[: -len(IMAGE_SUFFIX)] for key in observation if key.endswith(IMAGE_SUFFIX)]
        for view, camera in self.views.items():
            if camera not in cameras:
                raise ValueError(
                    f"the view {view!r} is of the camera {camera!r}, and the environment draws "
                    f"{', '.join(cameras) or 'none'}: make it with use_camera_obs=True and camera_names=[{camera!r}]"
                )
        low, high = self._task.action_spec
        self.action_space = gym.spaces.Box(low.astype(np.float32), high.astype(np.float32))
        numbers = self._numbers(observation)
        spaces: dict[str, gym.Space[Any]] = {
            name: gym.spaces.Box(-np.inf, np.inf, value.shape) for name, value in numbers.items()
        }
        self.observation_space = gym.spaces.Dict(spaces)

    @property
    def view_names(self) -> tuple[str, ...]:
        """Names of the views."""
        return tuple(self.views)

    def reset(self, *, seed: Optional[int] = None, options: Optional[dict[str, Any]] = None) -> Any:
        """Start an episode; a seed seeds the placement of objects and the noise of the robot."""
        super().reset(seed=seed)
        if seed is not None:
            seed_task(self._task, self.np_random)
            np.random.seed(seed)  # noqa: NPY002  read by robosuite before 1.5 and by LIBERO
        return self._numbers(self.env.reset()), {"success": False}

    def step(self, action: Any) -> Any:
        """Step, and tell a time limit from an end."""
        observation, reward, done, info = self.env.step(action)
        is_time_limit = bool(done) and self._task.timestep >= self._task.horizon
        infos = {**info, "success": bool(self._task._check_success())}
        return self._numbers(observation), float(reward), bool(done) and not is_time_limit, is_time_limit, infos

    def render_views(self, rows: Any = None) -> np.ndarray:
        """Return the present images, uint8 [1, V, H, W, 3]; `rows` is that of a vector, and ignored."""
        turn = -1 if macros.IMAGE_CONVENTION == OPENGL else 1
        images = [self._images[camera + IMAGE_SUFFIX][::turn] for camera in self.views.values()]
        return np.stack(images)[None]

    def close(self) -> None:
        """Free the simulation."""
        self.env.close()

    def _numbers(self, observation: Mapping[str, Any]) -> dict[str, np.ndarray]:
        self._images = {key: value for key, value in observation.items() if key.endswith(IMAGE_SUFFIX)}
        return {
            key: np.asarray(value, np.float32)
            for key, value in observation.items()
            if key not in self._images and np.asarray(value).dtype.kind in "fiub"
        }


def seed_task(task: Any, rng: np.random.Generator) -> None:
    """Draw the random numbers of a robosuite task from a generator, also those of samplers that it has made already."""
    task.rng = rng
    samplers = [getattr(task, "placement_initializer", None)]
    for sampler in samplers:
        if sampler is not None:
            sampler.rng = rng
            samplers += getattr(sampler, "samplers", {}).values()
