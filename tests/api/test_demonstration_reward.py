"""A demonstration as the reward of an environment, in process."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import embodied_rm as erm

SIDE, STEPS = 96, 24


def paint(position: float) -> np.ndarray:
    """A red square over a checkerboard, at a position in [0, 1]."""
    rows, columns = np.indices((SIDE, SIDE)) // 12
    image = np.where((rows + columns) % 2, 150, 180).astype(np.uint8)[..., None].repeat(3, axis=2)
    x = int(4 + 64 * position)
    image[36:60, x : x + 24] = (200, 30, 30)
    return image


class PushEnv(gym.Env[np.ndarray, int]):
    """Action 1 pushes the square to the right, action 0 to the left; the environment rewards nothing."""

    observation_space = gym.spaces.Box(0, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    render_mode = "rgb_array"

    def __init__(self) -> None:
        self.position = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.position = 0.0
        return np.array([self.position], np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.position = float(np.clip(self.position + (1 if action else -1) / STEPS, 0, 1))
        return np.array([self.position], np.float32), 0.0, False, False, {}

    def render(self) -> np.ndarray:  # type: ignore[override]
        return paint(self.position)


@pytest.fixture(scope="module")
def model() -> erm.DemonstrationRewardModel:
    frames = np.stack([paint(x) for x in np.linspace(0, 1, STEPS)])
    return erm.from_demonstration(
        erm.Episode(name="demonstration", views={"camera": frames}, instruction="push it to the right", fps=10.0)
    )


def returns(env: Any, action: int) -> float:
    env.reset(seed=0)
    return sum(float(env.step(action)[1]) for _ in range(STEPS))


def test_the_way_of_the_demonstration_is_rewarded_and_the_way_back_costs_the_same(model):
    env = erm.LearnedReward(PushEnv(), model, instruction="push it to the right", gamma=1.0)
    forward = returns(env, 1)
    assert forward > 0.8
    back = sum(float(env.step(0)[1]) for _ in range(STEPS))
    assert forward + back == pytest.approx(0, abs=0.1)
    assert abs(returns(env, 0)) < 0.1


def test_success_of_the_model_ends_the_episode(model):
    env = erm.LearnedReward(
        PushEnv(), model, instruction="push it to the right", gamma=1.0, success_source="model", success_patience=2
    )
    env.reset(seed=0)
    terminated = [env.step(1)[2] for _ in range(STEPS + 4)]
    assert any(terminated)
    assert terminated.index(True) > STEPS // 2


class HalfwayEnv(PushEnv):
    """The square starts halfway."""

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        _, info = super().reset(**kwargs)
        self.position = 0.5
        return np.array([self.position], np.float32), info


@pytest.mark.parametrize("instruction", ["push it", "push it; then stop"])
def test_an_episode_that_starts_halfway_starts_at_the_progress_of_its_first_frame(model, instruction):
    """A demonstration shows the whole task, so the instruction is not split into subgoals."""
    env = erm.LearnedReward(HalfwayEnv(), model, instruction=instruction, gamma=0.9)
    env.reset(seed=0)
    reward = env.step(1)[1]
    first, second = model.score(np.stack([paint(0.5), paint(0.5 + 1 / STEPS)]), instruction).progress
    assert first > 0.3
    assert reward == pytest.approx(0.9 * second - first, abs=1e-5)
