"""The in-process reward is what the model says of the same frames, in every autoreset mode and for one environment."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import embodied_rm as erm
from embodied_sim.vec_env import TabletopVecEnv

GAMMA = 0.9


class ColorEnv(gym.Env):
    """Shows one color per step; ends after five steps."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = gym.spaces.Box(0, 255, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = "rgb_array") -> None:
        self.render_mode, self.t = render_mode, 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.t = 0
        return np.float32([0]), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.t += 1
        return np.float32([self.t]), 0.0, self.t == 5, False, {}

    def render(self) -> np.ndarray:
        noise = np.random.default_rng(self.t).integers(0, 256, (64, 64, 3))
        return noise.astype(np.uint8)


def expected_rewards(model: erm.ProgressRewardModel) -> list[float]:
    """Shaped by the definition: gamma Phi(s') - Phi(s), Phi of a terminal state being 0."""
    env = ColorEnv()
    frames = []
    for t in range(6):
        env.t = t
        frames.append(env.render())
    phi = model.score(np.stack(frames), "go").progress.astype(np.float64)
    phi_next = np.append(phi[1:5], 0.0)
    return (GAMMA * phi_next - phi[:5]).tolist()


@pytest.fixture(scope="module")
def model() -> erm.ProgressRewardModel:
    return erm.load_reward_model()


def test_one_environment(model: erm.ProgressRewardModel) -> None:
    env = erm.LearnedReward(ColorEnv(), model, instruction="go", gamma=GAMMA)
    for _ in range(2):
        env.reset(seed=0)
        rewards = [env.step(0)[1] for _ in range(5)]
        np.testing.assert_allclose(rewards, expected_rewards(model), atol=1e-6)


def test_a_vector_of_environments(model: erm.ProgressRewardModel) -> None:
    envs = SyncVectorEnv([ColorEnv] * 3, autoreset_mode=AutoresetMode.NEXT_STEP)
    wrapped = erm.LearnedReward(envs, model, instruction="go", gamma=GAMMA)
    wrapped.reset(seed=0)
    rewards = np.stack([wrapped.step(np.zeros(3, int))[1] for _ in range(11)])
    for row in range(3):
        np.testing.assert_allclose(rewards[:5, row], expected_rewards(model), atol=1e-6)
        assert rewards[5, row] == 0, "the step that resets pays nothing"
        np.testing.assert_allclose(rewards[6:11, row], expected_rewards(model), atol=1e-6)


def test_the_callers_threshold_and_patience_decide_when_a_sub_goal_is_done(model: erm.ProgressRewardModel) -> None:
    potentials = {}
    for patience in (1, 5):
        env = erm.LearnedReward(
            ColorEnv(), model, instruction="go; then stop", success_threshold=1e-9, success_patience=patience
        )
        env.reset(seed=0)
        potentials[patience] = env.step(0)[4]["next_potential"]
    assert potentials[1] == 0.5, "the second of two sub-goals starts at the first success"
    assert potentials[5] < 0.5, "five successes are not reached at the first step"


def test_the_simulators_cameras_are_used_by_name(model: erm.ProgressRewardModel) -> None:
    envs = TabletopVecEnv(
        "open_drawer", num_envs=2, views=("front", "wrist"), image_size=64, autoreset_mode=AutoresetMode.DISABLED
    )
    wrapped = erm.LearnedReward(
        envs, model, instruction=lambda env: env.instructions, gamma=GAMMA, success_in_each_view=True
    )
    assert wrapped.reward_spec.config.success_in_each_view, "refine pays by the same rule"
    wrapped.reset(seed=1)
    reward, infos = wrapped.step(np.zeros((2, 4), np.float32))[1::3]
    assert reward.shape == (2,) and np.isfinite(reward).all()
    np.testing.assert_array_equal(infos["potential"], [0, 0])
    wrapped.close()


def test_an_environment_that_draws_nothing_is_refused(model: erm.ProgressRewardModel) -> None:
    with pytest.raises(erm.UserError, match="ColorEnv draws nothing: make it with render_mode='rgb_array'"):
        erm.LearnedReward(ColorEnv(render_mode=None), model, instruction="go")


def test_one_environment_takes_one_instruction(model: erm.ProgressRewardModel) -> None:
    with pytest.raises(erm.UserError, match="takes one instruction"):
        erm.LearnedReward(ColorEnv(), model, instruction=["go", "stop"])
