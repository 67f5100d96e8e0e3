"""Episodes whose images show their potential, a model that reads it, and the rewards by hand that follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from embodied_rm.client.arrays import to_numpy
from embodied_rm.models.reward_model import Capabilities, InputSpec, make_plain_output

GAMMA = 0.5
EPISODES = (
    (([0.2, 0.4, 0.8], "terminated"), ([0.0, 0.6], "truncated"), ([0.2, 0.4, 0.6, 1.0], "both")),
    (([0.4, 0.2, 0.6, 0.8], "truncated"), ([0.2, 1.0, 0.4], "both"), ([0.0, 0.6], "terminated")),
)
"""Row -> its episodes, in turn: the potential of each state, and the flags of the end. A terminal state pays 1."""
STEPS = 6
"""Steps of either row until its episodes start again."""
REWARDS = np.array([[0.0, 0.6, 0.3, 0.0, -0.1, 0.4], [-0.3, 0.1, -0.2, 0.3, 0.0, 1.0]])
"""[row, step]: the task reward plus gamma Phi(s') - Phi(s), Phi of a terminal state being 0."""
TERMINATED = np.array([[0, 1, 0, 0, 0, 1], [0, 0, 0, 0, 1, 1]], bool)
DONE = np.array([[0, 1, 1, 0, 0, 1], [0, 0, 1, 0, 1, 1]], bool)
MODEL_REWARDS = np.array([[0.0, -0.4, 0.3, 0.0, -0.1, 2.4], [-0.3, 0.1, -0.2, 2.8, 0.0, -0.3]])
"""The same with `MODEL_SUCCESS`: success according to the model, at potential 1, ends an episode and pays 3."""
MODEL_TERMINATED = np.array([[0, 1, 0, 0, 0, 1], [0, 0, 0, 1, 1, 0]], bool)
MODEL_DONE = np.array([[0, 1, 1, 0, 0, 1], [0, 0, 1, 1, 1, 0]], bool)
MODEL_SUCCESS = {"success_source": "model", "success_reward": 3.0, "success_patience": 1, "success_threshold": 0.9}


def known_image(potential: float) -> np.ndarray:
    return np.full((8, 8, 3), round(255 * potential), np.uint8)


@dataclass
class RowStates:
    """Potentials [N] of the images last scored."""

    phi: np.ndarray

    def __len__(self) -> int:
        return len(self.phi)

    def take(self, rows: np.ndarray) -> RowStates:
        return RowStates(self.phi[rows])

    def put(self, rows: np.ndarray, other: RowStates) -> RowStates:
        phi = self.phi.copy()
        phi[rows] = other.phi
        return RowStates(phi)

    def potential(self) -> np.ndarray:
        return self.phi


class KnownImageModel:
    """Progress is the brightness of the image, of first frames too; success is progress 1."""

    capabilities = Capabilities(accepts_tensors=True)
    input_spec = InputSpec()

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        """Kinds of arrays that were scored."""

    def reset(self, views: Any, instructions: Any, goal: Any = None, reference: Any = None) -> RowStates:
        self.kinds.add(type(views.frames).__name__)
        return RowStates(to_numpy(views.frames)[:, 0].mean((1, 2, 3), dtype=np.float32) / 255)

    def first_output(self, state: RowStates) -> Any:
        return make_plain_output(state.phi, np.ones(len(state), bool), (state.phi == 1).astype(np.float32))

    def step(self, state: RowStates, views: Any) -> tuple[Any, RowStates]:
        next_state = self.reset(views, None)
        return self.first_output(next_state), next_state


class KnownImageEnv(gym.Env):
    """A row of `EPISODES`. Its observation is the image, or with `has_state` a dictionary of image and state."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, row: int, has_state: bool = True) -> None:
        self.row, self.episode, self.t = row, -1, 0
        pixels, state = gym.spaces.Box(0, 255, (8, 8, 3), np.uint8), gym.spaces.Box(0, 99, (2,), np.float32)
        self.observation_space = gym.spaces.Dict({"pixels": pixels, "state": state}) if has_state else pixels

    def observe(self) -> Any:
        potentials, _ = EPISODES[self.row][self.episode % 3]
        pixels = known_image(potentials[self.t])
        state = np.array([self.episode, self.t], np.float32)
        return {"pixels": pixels, "state": state} if isinstance(self.observation_space, gym.spaces.Dict) else pixels

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        self.episode, self.t = self.episode + 1, 0
        return self.observe(), {"episode_index": self.episode}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        potentials, end = EPISODES[self.row][self.episode % 3]
        self.t += 1
        ended = self.t == len(potentials) - 1
        terminated, truncated = ended and end != "truncated", ended and end != "terminated"
        return self.observe(), float(terminated), terminated, truncated, {"t": self.t}


class TimeLimitsOnly(gym.Wrapper):
    """Every end is a time limit. With `MODEL_SUCCESS`, row 0 ends at its last step by the model in the same step."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, infos = self.env.step(action)
        return observation, reward, False, terminated or truncated, infos
