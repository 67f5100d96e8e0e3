"""A vector environment whose observations, images and infos encode environment, episode and step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from painted_frames import paint_frames

STEPS_PER_EPISODE, EPISODES_PER_ENV = 32, 8


def timestep_number(env_id: int, episode: int, step: int) -> int:
    """The number painted for that timestep (12 bits)."""
    return (env_id * EPISODES_PER_ENV + episode) * STEPS_PER_EPISODE + step


class CountingEnv(VectorEnv):
    """Episode e of environment r lasts `5 + (3 * r + 7 * e) % 11` steps. It must be reset as soon as it is done.

    `diverging`: (environment, episode) -> step at which the simulation diverges. Episodes of even number succeed.
    """

    view_names = ("front", "wrist")
    subtask_names = ("reach", "grasp", "lift")

    def __init__(
        self,
        num_envs: int,
        diverging: Mapping[tuple[int, int], int] | None = None,
        mode: AutoresetMode = AutoresetMode.DISABLED,
    ) -> None:
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": mode, "render_fps": 20}
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.single_action_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.diverging = dict(diverging or {})
        self.episode = np.full(num_envs, -1)
        self.time = np.zeros(num_envs, np.int64)
        self.done = np.ones(num_envs, np.bool_)
        self.rendered = 0

    def length(self, env_id: int) -> int:
        return 5 + (3 * env_id + 7 * int(self.episode[env_id])) % 11

    @property
    def instructions(self) -> tuple[str, ...]:
        return tuple(f"row {env_id} episode {self.episode[env_id]}" for env_id in range(self.num_envs))

    def reset(self, *, seed=None, options=None):
        mask = np.ones(self.num_envs, np.bool_) if options is None else options["reset_mask"]
        self.episode[mask] += 1
        self.time[mask] = 0
        self.done[mask] = False
        return self._obs(), self._info()

    def step(self, actions):
        assert not self.done.any(), "a finished environment has not been reset"
        self.time += 1
        info = self._info()
        terminated = info["diverged"] | np.array([self.time[r] >= self.length(r) for r in range(self.num_envs)])
        self.done = terminated.copy()
        return self._obs(), np.zeros(self.num_envs), terminated, np.zeros(self.num_envs, np.bool_), info

    def render_views(self, env_ids):
        self.rendered += len(env_ids)
        numbers = [timestep_number(r, int(self.episode[r]) % EPISODES_PER_ENV, int(self.time[r])) for r in env_ids]
        images = paint_frames(numbers)
        return np.stack([images, 255 - images], axis=1)

    def _obs(self) -> np.ndarray:
        return np.stack([np.arange(self.num_envs), self.episode, self.time], 1).astype(np.float32)

    def _info(self) -> dict[str, Any]:
        progress = np.array([self.time[r] / self.length(r) for r in range(self.num_envs)])
        diverged = [self.diverging.get((r, int(self.episode[r]))) == self.time[r] for r in range(self.num_envs)]
        return {
            "progress": progress.astype(np.float32),
            "subtask": np.minimum((progress * 3).astype(np.int64), 2),
            "success": (progress >= 1) & (self.episode % 2 == 0),
            "diverged": np.array(diverged),
        }
