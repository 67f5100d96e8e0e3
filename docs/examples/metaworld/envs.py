"""Meta-World's tasks as Gymnasium environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from scene import ACTION_REPEAT, MetaWorldScene

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
