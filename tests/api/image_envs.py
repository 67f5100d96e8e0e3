"""Environments that show known images, with a batch axis, with tensors and without, and their rewards by definition."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch

import embodied_rm as erm
from embodied_rm.client import frames_from_observation

GAMMA = 0.9
LENGTH = 3
ROWS = 2


def image(episode: int, t: int) -> np.ndarray:
    return np.random.default_rng([episode, t]).integers(0, 256, (64, 64, 3), np.uint8)


def expected_rewards(model: erm.ProgressRewardModel, episode: int, *, terminates: bool | None = None) -> list[float]:
    """By the definition: gamma Phi(s') - Phi(s), Phi of a terminal state being 0; odd episodes end by a time limit."""
    phi = model.score(np.stack([image(episode, t) for t in range(LENGTH + 1)]), "go").progress.astype(np.float64)
    if terminates or (terminates is None and episode % 2 == 0):
        phi[LENGTH] = 0
    return (GAMMA * phi[1:] - phi[:-1]).tolist()


class ImageEnv(gym.Env):
    """Shows known images, and ends after three steps: even episodes terminate, odd ones are truncated."""

    observation_space = gym.spaces.Dict(
        {"pixels": gym.spaces.Dict({"top": gym.spaces.Box(0, 255, (64, 64, 3), np.uint8)})}
    )
    action_space = gym.spaces.Discrete(2)

    def __init__(self, reuse_buffer: bool = False) -> None:
        self.episode, self.t = -1, 0
        self.buffer = np.empty((64, 64, 3), np.uint8) if reuse_buffer else None

    def observe(self) -> dict[str, dict[str, np.ndarray]]:
        frame = image(self.episode, self.t)
        if self.buffer is not None:
            self.buffer[:] = frame
            frame = self.buffer
        return {"pixels": {"top": frame}}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        self.episode, self.t = self.episode + 1, 0
        return self.observe(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        self.t += 1
        ended, terminates = self.t == LENGTH, self.episode % 2 == 0
        return self.observe(), 0.0, ended and terminates, ended and not terminates, {}


class BatchedEnv(gym.vector.VectorEnv):
    """Two rows that reset within the step, as ManiSkill's vector: final observations are batched."""

    def __init__(self, metadata: dict[str, Any], key: str = "final_observation") -> None:
        self.num_envs, self.metadata, self.key = ROWS, metadata, key
        self.single_observation_space = ImageEnv.observation_space
        self.single_action_space = gym.spaces.Discrete(2)
        self.episode, self.t = -1, 0

    def observe(self) -> dict[str, dict[str, np.ndarray]]:
        return {"pixels": {"top": np.stack([image(self.episode, self.t)] * ROWS)}}

    def reset(self, *, seed: Any = None, options: dict | None = None) -> tuple[Any, dict]:
        self.episode, self.t = self.episode + 1, 0
        return self.observe(), {}

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict]:
        self.t += 1
        ended, infos = np.full(ROWS, self.t == LENGTH), {}
        terminated = ended & (self.episode % 2 == 0)
        if ended.any():
            infos = {self.key: self.observe(), f"_{self.key}": ended}
            self.reset()
        return self.observe(), np.zeros(ROWS), terminated, ended & ~terminated, infos


def wrap(env: Any, model: erm.ProgressRewardModel, **options: Any) -> Any:
    options.setdefault("get_frames", frames_from_observation(front="pixels/top"))
    return erm.LearnedReward(env, model, instruction="go", gamma=GAMMA, **options)


def check_two_episodes(env: Any, model: erm.ProgressRewardModel) -> None:
    """Two episodes in a row pay what the definition says, in each row."""
    env.reset(seed=0)
    rewards = np.stack([np.asarray(env.step(np.zeros(ROWS, int))[1]) for _ in range(2 * LENGTH)])
    expected = expected_rewards(model, 0) + expected_rewards(model, 1)
    np.testing.assert_allclose(rewards, np.stack([expected] * ROWS, 1), atol=1e-6)


class TorchEnvs:
    """Two rows of tensors that are no Gymnasium class, as those of Isaac Lab and mjlab; they reset within the step."""

    is_vector_env = True
    num_envs = ROWS
    device = torch.device("cpu")

    def __init__(self) -> None:
        self.inner = BatchedEnv({}, "final_obs")
        self.reset_arguments: list[dict[str, Any]] = []

    def reset(self, seed: int | None = None, env_ids: Any = None, options: dict | None = None) -> tuple[Any, dict]:
        self.reset_arguments.append({"seed": seed, "env_ids": env_ids})
        return to_tensors(self.inner.reset()[0]), {}

    def step(self, actions: torch.Tensor) -> tuple[Any, ...]:
        assert isinstance(actions, torch.Tensor)
        return tuple(to_tensors(part) for part in self.inner.step(actions))

    def close(self) -> None:
        pass


def to_tensors(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: to_tensors(entry) for key, entry in value.items()}
    if value.dtype == np.float64:
        value = value.astype(np.float32)
    return torch.from_numpy(value)


def check_two_episodes_of_tensors(env: Any, model: erm.ProgressRewardModel) -> None:
    env.reset(seed=0)
    rewards = torch.stack([env.step(torch.zeros(ROWS))[1].reshape(ROWS) for _ in range(2 * LENGTH)])
    expected = expected_rewards(model, 0) + expected_rewards(model, 1)
    tolerance = 1e-2 if rewards.dtype == torch.bfloat16 else 1e-6
    np.testing.assert_allclose(rewards.double(), np.stack([expected] * ROWS, 1), atol=tolerance)
