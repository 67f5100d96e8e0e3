"""Environments and models with known answers.

The environments are Gymnasium vector environments with disabled autoreset and images.
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
    """Common base: disabled autoreset, one small view, one instruction per row."""

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
    """Row i ends by time limit after i + 2 steps; its image is (row, episode, step); so is its observation.

    `diverges(row, episode, step)` injects divergences. All steps return the same observation array.
    """

    def __init__(self, num_envs: int, diverges=lambda row, episode, step: False) -> None:
        super().__init__(num_envs, obs_dim=3, action_dim=1)
        self.diverges = diverges
        self.episode = np.full(num_envs, -1)
        self.count = np.zeros(num_envs, int)
        self.buffer = np.zeros((num_envs, 3), np.float32)

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
        self.buffer[:] = np.stack([np.arange(self.num_envs), self.episode, self.count], axis=1)
        return self.buffer


class PointReachEnv(KnownEnv):
    """A point must reach the origin within 0.15 and stay, in 20 steps. Red is the progress, green the success."""

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
        frames[:, 0, 4, 4, 2] = 255  # an image of one color counts as a dead camera
        frames[:, 0, 0, 0, 0] = np.rint(255 * np.clip(1 - distance, 0, 1))
        frames[:, 0, 0, 0, 1] = 255 * (distance < self.reach)
        return frames


@dataclass(frozen=True)
class KnownState:
    """State of a known model: the last frame and the potential, one row per episode."""

    frame: np.ndarray
    phi: np.ndarray

    def __len__(self) -> int:
        return len(self.phi)

    def take(self, rows):
        return replace(self, frame=self.frame[rows].copy(), phi=self.phi[rows].copy())

    def put(self, rows, other):
        new = self.take(np.arange(len(self)))
        new.frame[rows], new.phi[rows] = other.frame, other.phi
        return new

    def potential(self):
        return self.phi.copy()


@dataclass
class LookupModel:
    """Reads progress, success and validity from tables [row, episode, step] at the numbers in the image.

    Uncertainty and out-of-distribution value grow by 0.01 and 0.4 per step.

    It asserts that it never gets invalid input: a first frame in `step`, a later frame in `reset`, a frame of another
    row or episode than its state, an instruction of another episode, or a frame twice.
    """

    capabilities = Capabilities()
    progress: np.ndarray
    success: np.ndarray
    valid: np.ndarray
    scored: list[tuple[int, int, int]] = field(default_factory=list)

    def reset(self, views, instructions, goal=None):
        frame = read_numbers(views)
        assert (frame[:, 2] == 0).all(), "a later frame as the first one"
        assert list(instructions) == [f"row {r} episode {e}" for r, e, _ in frame]
        return KnownState(frame, self.progress[tuple(frame.T)])

    def step(self, state, views):
        frame = read_numbers(views)
        assert (frame[:, :2] == state.frame[:, :2]).all(), "a frame of another row or episode"
        assert (frame[:, 2] > state.frame[:, 2]).all(), "a first frame, or a frame twice"
        at = tuple(frame.T)
        self.scored += [tuple(int(i) for i in frame) for frame in frame]
        # Invalid values must not be read.
        value = np.where(self.valid[at], self.progress[at], np.nan).astype(np.float32)
        success = np.where(self.valid[at], self.success[at], np.nan).astype(np.float32)
        output = make_output(value, self.valid[at], success)
        output.uncertainty[:], output.ood[:] = 0.01 * frame[:, 2], np.where(self.valid[at], 0.4 * frame[:, 2], np.nan)
        return output, replace(state, frame=frame)


class ImageModel:
    """A perfect reward model of `PointReachEnv`: red is the progress, green the success."""

    capabilities = Capabilities()

    def reset(self, views, instructions, goal=None, reference=None):
        return KnownState(np.zeros(len(views)), np.zeros(len(views), np.float32))

    def step(self, state, views):
        pixel = views.frames[:, 0, 0, 0].astype(np.float32) / 255
        return make_output(pixel[:, 0], np.ones(len(views), bool), pixel[:, 1]), replace(state, phi=pixel[:, 0])


def read_numbers(views: Views) -> np.ndarray:
    """Return the (row, episode, step) [n, 3] of images of `CountingEnv`."""
    return views.frames[:, 0, 0, 0].astype(int)


def make_output(value, valid, success) -> RewardOutput:
    """Return a `RewardOutput` without subtask and uncertainty."""
    return RewardOutput(
        progress=value,
        valid=valid,
        subtask=np.zeros(len(value), np.int64),
        success=success,
        uncertainty=np.zeros_like(value),
    )
