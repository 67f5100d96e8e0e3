"""A task as an environment with the observations and infos that LeRobot reads. Needs no `lerobot`."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from embodied_sim.sim_errors import lookup
from embodied_sim.single_env import TabletopEnv

OBS_TYPES = ("pixels_agent_pos", "pixels")
"""Observations: camera images, with or without the vector that `embodied-rm collect` records as the state."""

Action = npt.NDArray[np.float32]
Observation = dict[str, Any]


class LeRobotEnv(gym.Env[Observation, Action]):
    """One environment of a task; episodes end at their first sustained success.

    Observation: `pixels`, view -> uint8 [H, W, 3], and with "pixels_agent_pos" `agent_pos`, float32 [D], which is the
    observation of `TabletopEnv`. Action, reward and infos are those of `TabletopEnv`, with `is_success` in the infos.
    """

    metadata: ClassVar[dict[str, Any]] = TabletopEnv.metadata  # type: ignore[misc]

    def __init__(
        self,
        task: str,
        *,
        views: Sequence[str] = ("front", "wrist"),
        image_size: int = 64,
        obs_type: str = OBS_TYPES[0],
    ) -> None:
        """Build the environment.

        Args:
            task: Name of a registered task, or path of a file that defines one.
            views: Cameras, in the order of `pixels` and of `render`.
            image_size: Height and width of each image, pixels.
            obs_type: One of `OBS_TYPES`.

        Raises:
            SimError: Unknown task, view or type of observation.
        """
        lookup(dict.fromkeys(OBS_TYPES), obs_type, "obs_type")
        self.task, self.views, self.obs_type = task, tuple(views), obs_type
        options: dict[str, Any] = {"views": self.views, "image_size": image_size, "ends_on_success": True}
        self.tabletop_env = TabletopEnv(task, render_mode="rgb_array", **options)
        self.render_mode, self.action_space = self.tabletop_env.render_mode, self.tabletop_env.action_space
        image_space = gym.spaces.Box(0, 255, (image_size, image_size, 3), np.uint8)
        spaces: dict[str, gym.Space[Any]] = {"pixels": gym.spaces.Dict(dict.fromkeys(self.views, image_space))}
        if obs_type == "pixels_agent_pos":
            spaces["agent_pos"] = self.tabletop_env.observation_space
        self.observation_space = gym.spaces.Dict(spaces)

    @property
    def task_description(self) -> str:
        """Return the instruction of the current episode."""
        return self.tabletop_env.instruction

    @property
    def _max_episode_steps(self) -> int:
        """Time limit, control steps, under the name that `lerobot-eval` asks for."""
        return self.tabletop_env.vec_env.max_episode_steps

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start a new episode; options, such as LeRobot's mark of a new rollout, change nothing."""
        state, info = self.tabletop_env.reset(seed=seed)
        return self._observe(state), {**info, "is_success": info["success"]}

    def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Advance by one control step (50 ms) with an action [4] in [-1, 1]."""
        state, reward, terminated, truncated, info = self.tabletop_env.step(action)
        return self._observe(state), reward, terminated, truncated, {**info, "is_success": info["success"]}

    def render(self) -> npt.NDArray[np.uint8]:
        """Return the views side by side: uint8 [H, V * W, 3]."""
        return self.tabletop_env.render()

    def close(self) -> None:
        """Free the renderer and the physics. May be called twice."""
        self.tabletop_env.close()

    def _observe(self, state: npt.NDArray[np.float32]) -> Observation:
        frames = self.tabletop_env.vec_env.render_views()[0]
        observation: Observation = {"pixels": dict(zip(self.views, frames, strict=True))}
        return observation if self.obs_type == "pixels" else {**observation, "agent_pos": state}
