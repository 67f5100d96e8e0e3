"""`TabletopEnv`: one environment as a plain `gymnasium.Env`, for code without vector environments."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from embodied_sim.sim_errors import SimError
from embodied_sim.vec_env import CONTROL_HZ, TabletopVecEnv

OBS_BOUND = 10.0
"""Bound of every observation, m (or rad): a space needs one, and items that fall off the table fall without end."""

Observation = npt.NDArray[np.float32]
StepResult = tuple[Observation, float, bool, bool, dict[str, Any]]


class TabletopEnv(gym.Env[Observation, npt.NDArray[np.float32]]):
    """One environment; with the same seed it equals row 0 of a `TabletopVecEnv`.

    Observation float32 [D], clipped to `OBS_BOUND`; action, reward and ends as in `TabletopVecEnv`. Infos: `success`
    (sustained), `progress` (in [0, 1]), `subtask` (index of the current subtask) and `diverged`.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": CONTROL_HZ}  # type: ignore[misc]

    def __init__(
        self,
        task: str,
        *,
        render_mode: str | None = None,
        views: Sequence[str] = ("front",),
        image_size: int = 256,
        ends_on_success: bool = False,
    ) -> None:
        """Build the environment.

        Args:
            task: Name of a registered task, or path of a file that defines one.
            render_mode: "rgb_array" or None.
            views: Cameras that `render` shows side by side.
            image_size: Height and width of each view, pixels.
            ends_on_success: Terminate the episode at its first sustained success.

        Raises:
            SimError: Unknown task, view or render mode.
        """
        if render_mode not in (None, "rgb_array"):
            raise SimError(f"unknown render_mode {render_mode!r}. Available: rgb_array, or None for no images")
        self.render_mode = render_mode
        options: dict[str, Any] = {"views": views, "image_size": image_size, "ends_on_success": ends_on_success}
        self.vec_env = TabletopVecEnv(task, 1, autoreset_mode=AutoresetMode.DISABLED, threads=1, **options)
        shape = self.vec_env.single_observation_space.shape
        self.observation_space = gym.spaces.Box(-OBS_BOUND, OBS_BOUND, shape, np.float32)
        self.action_space = self.vec_env.single_action_space

    @property
    def instruction(self) -> str:
        """Return the instruction of the current episode."""
        return self.vec_env.instructions[0]

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start a new episode; there are no options."""
        super().reset(seed=seed)
        observation, infos = self.vec_env.reset(seed=seed)
        return _first_row(observation), _scalar_infos(infos)

    def step(self, action: npt.NDArray[np.float32]) -> StepResult:
        """Advance by one control step (50 ms) with an action [4] in [-1, 1]."""
        observation, reward, terminated, truncated, infos = self.vec_env.step(np.asarray(action)[None])
        return _first_row(observation), float(reward[0]), bool(terminated[0]), bool(truncated[0]), _scalar_infos(infos)

    def render(self) -> npt.NDArray[np.uint8]:
        """Render the views side by side: uint8 [H, V * W, 3]."""
        if self.render_mode is None:
            raise SimError("render needs render_mode='rgb_array' in gymnasium.make")
        return np.concatenate(self.vec_env.render_views()[0], axis=1)

    def close(self) -> None:
        """Free the renderer and the physics. May be called twice."""
        self.vec_env.close()


def _first_row(observation: Observation) -> Observation:
    return np.clip(observation[0], -OBS_BOUND, OBS_BOUND)


def _scalar_infos(infos: Mapping[str, npt.NDArray[Any]]) -> dict[str, Any]:
    return {name: values[0].item() for name, values in infos.items()}
