"""Environments whose answer is known: an environment that counts, one where a point must reach a goal, models that look up.

Both environments are Gymnasium vector environments with disabled autoreset that can show themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from embodied_rm.models.reward_model import Capabilities
from embodied_rm.types import RewardOutput, Views


class KnownEnv(gym.vector.VectorEnv):
    """What both have in common: disabled autoreset, one small view, one instruction a row."""

    def __init__(self, num_envs: int, obs_dim: int, action_dim: int) -> None:
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, (obs_dim,), np.float32)
        self.single_action_space = gym.spaces.Box(-1.0, 1.0, (action_dim,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.view_names = ("front",)
        self.rendered = 0

    def _mask(self, options: dict[str, Any] | None) -> np.ndarray:
        return np.ones(self.num_envs, bool) if not options else np.asarray(options["reset_mask"])


class CountingEnv(KnownEnv):
    """Row i ends by time limit after i + 2 steps; its image is (row, episode, step); its observation counts too.

    `diverges(row, episode, step)` injects faults. The observation array is one and the same memory at every step.
    """

    def __init__(self, num_envs: int, diverges=lambda row, episode, step: False) -> None:
        super().__init__(num_envs, obs_dim=3, action_dim=1)
        self.diverges = diverges
        self.episode = np.full(num_envs, -1)
        self.count = np.zeros(num_envs, int)
        self.memory = np.zeros((num_envs, 3), np.float32)

    @property
    def instructions(self) -> tuple[str, ...]:
        return tuple(f"row {row} episode {episode}" for row, episode in enumerate(self.episode))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        mask = self._mask(options)
        self.episode[mask] += 1
        self.count[mask] = 0
        return self._observe(), {}

    def step(self, actions):
        self.count += 1
        rows = np.arange(self.num_envs)
        diverged = np.array([self.diverges(*at) for at in zip(rows, self.episode, self.count, strict=True)])
        timed_out = self.count >= rows + 2
        infos = {"diverged": diverged, "success": np.zeros(self.num_envs, bool)}
        observation = self._observe()
        observation[diverged] = np.nan
        return observation, np.full(self.num_envs, 1e6), np.zeros(self.num_envs, bool), timed_out, infos

    def render_views(self, rows):
        self.rendered += len(rows)
        frames = np.zeros((len(rows), 1, 2, 2, 3), np.uint8)
        for channel, values in enumerate((np.arange(self.num_envs), self.episode, self.count)):
            frames[..., channel] = values[rows, None, None, None]
        return frames

    def _observe(self):
        self.memory[:] = np.stack([np.arange(self.num_envs), self.episode, self.count], axis=1)
        return self.memory


class PointReachEnv(KnownEnv):
    """A point in the plane must come within 0.15 of the origin and stay; 20 steps. Red: progress, green: success."""

    reach = 0.15
    max_episode_steps = 20

    def __init__(self, num_envs: int, *, ends_on_success: bool = False) -> None:
        super().__init__(num_envs, obs_dim=2, action_dim=2)
        self.ends_on_success = ends_on_success
        self.instructions = ("reach the origin",) * num_envs
        self.position, self.start = np.zeros((num_envs, 2)), np.ones(num_envs)
        self.count, self.stayed = np.zeros(num_envs, int), np.zeros(num_envs, int)
        self.random = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        if seed is not None:
            self.random = np.random.default_rng(seed)
        mask = self._mask(options)
        angle = self.random.uniform(0, 2 * np.pi, mask.sum())
        self.position[mask] = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        self.count[mask] = self.stayed[mask] = 0
        return self.position.astype(np.float32), {}

    def step(self, actions):
        self.position += 0.15 * np.clip(actions, -1, 1)
        self.count += 1
        near = np.linalg.norm(self.position, axis=1) < self.reach
        self.stayed = np.where(near, self.stayed + 1, 0)
        success = self.stayed >= 3
        infos = {"diverged": np.zeros(self.num_envs, bool), "success": success}
        terminated = success & self.ends_on_success
        return (
            self.position.astype(np.float32),
            np.zeros(self.num_envs),
            terminated,
            self.count >= self.max_episode_steps,
            infos,
        )

    def render_views(self, rows):
        self.rendered += len(rows)
        distance = np.linalg.norm(self.position[rows], axis=1)
        frames = np.zeros((len(rows), 1, 5, 5, 3), np.uint8)
        frames[:, 0, 4, 4, 2] = 255  # an image of one color would be that of a dead camera
        frames[:, 0, 0, 0, 0] = np.rint(255 * np.clip(1 - distance, 0, 1))
        frames[:, 0, 0, 0, 1] = 255 * (distance < self.reach)
        return frames


@dataclass(frozen=True)
class KnownMemory:
    """The frame last seen and the potential, a row each."""

    seen: np.ndarray
    phi: np.ndarray

    def __len__(self) -> int:
        return len(self.phi)

    def take(self, rows):
        return replace(self, seen=self.seen[rows].copy(), phi=self.phi[rows].copy())

    def put(self, rows, other):
        new = self.take(np.arange(len(self)))
        new.seen[rows], new.phi[rows] = other.seen, other.phi
        return new

    def potential(self):
        return self.phi.copy()


@dataclass
class LookupModel:
    """Reads progress, success and validity from tables [row, episode, step] by the numbers painted in the image.

    Spread and out-of-distribution score grow with the step, by 0.01 and 0.4.

    It refuses, by assertion, whatever a reward model must never be shown: a first frame to `advance`, a later frame
    to `begin`, a frame of another row or episode than its memory, an instruction of another episode, a frame twice.
    """

    capabilities = Capabilities()
    progress: np.ndarray
    success: np.ndarray
    valid: np.ndarray
    scored: list[tuple[int, int, int]] = field(default_factory=list)

    def reset(self, views, instructions, goal=None):
        seen = painted(views)
        assert (seen[:, 2] == 0).all(), "a later frame was shown as a first one"
        assert list(instructions) == [f"row {r} episode {e}" for r, e, _ in seen]
        return KnownMemory(seen, self.progress[tuple(seen.T)])

    def step(self, memory, views):
        seen = painted(views)
        assert (seen[:, :2] == memory.seen[:, :2]).all(), "a frame of another row or episode"
        assert (seen[:, 2] > memory.seen[:, 2]).all(), "a first frame, or a frame twice"
        at = tuple(seen.T)
        self.scored += [tuple(int(i) for i in frame) for frame in seen]
        # Garbage where invalid: nobody may read it.
        value = np.where(self.valid[at], self.progress[at], np.nan).astype(np.float32)
        success = np.where(self.valid[at], self.success[at], np.nan).astype(np.float32)
        told = judged(value, self.valid[at], success)
        told.uncertainty[:], told.ood[:] = 0.01 * seen[:, 2], np.where(self.valid[at], 0.4 * seen[:, 2], np.nan)
        return told, replace(memory, seen=seen)


class ImageModel:
    """Progress is the red of the image, success the green: a perfect reward model of `PointReachEnv`."""

    capabilities = Capabilities()

    def reset(self, views, instructions, goal=None):
        return KnownMemory(np.zeros(len(views)), np.zeros(len(views), np.float32))

    def step(self, memory, views):
        pixel = views.frames[:, 0, 0, 0].astype(np.float32) / 255
        return judged(pixel[:, 0], np.ones(len(views), bool), pixel[:, 1]), replace(memory, phi=pixel[:, 0])


def painted(views: Views) -> np.ndarray:
    """(row, episode, step) [n, 3] that `CountingEnv` painted."""
    return views.frames[:, 0, 0, 0].astype(int)


def judged(value, valid, success) -> RewardOutput:
    """A `Progress` with nothing to say about stage and spread."""
    return RewardOutput(
        progress=value,
        valid=valid,
        subtask=np.zeros(len(value), np.int64),
        success=success,
        uncertainty=np.zeros_like(value),
    )
