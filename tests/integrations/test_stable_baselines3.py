"""Stable-Baselines3: rewards by value, terminal images, ends by the model, and training through its wrappers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from known_rewards import (
    DONE,
    GAMMA,
    MODEL_DONE,
    MODEL_REWARDS,
    MODEL_SUCCESS,
    MODEL_TERMINATED,
    REWARDS,
    STEPS,
    TERMINATED,
    KnownImageEnv,
    KnownImageModel,
    TimeLimitsOnly,
)
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecExtractDictObs, VecFrameStack, VecMonitor

import embodied_rm as erm
from embodied_rm.client import frames_from_observation, frames_from_render
from embodied_rm.client.integrations.stable_baselines3 import LearnedRewardVecEnv

VEC_ENVS = {"DummyVecEnv": DummyVecEnv, "SubprocVecEnv": lambda makers: SubprocVecEnv(makers, start_method="fork")}


def make_envs(name: str = "DummyVecEnv", wrapper: Any = lambda env: env, **options: Any) -> Any:
    return VEC_ENVS[name]([lambda row=row: wrapper(KnownImageEnv(row, **options)) for row in range(2)])


def wrap(venv: Any, **options: Any) -> LearnedRewardVecEnv:
    options.setdefault("get_frames", frames_from_observation(front="pixels"))
    return erm.LearnedReward(venv, KnownImageModel(), instruction="go", gamma=GAMMA, **options)


def run(env: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[list[dict]], list[Any]]:
    """Return rewards, terminations and ends [row, step], and the infos and observations of each step."""
    rewards, dones, infos, observations = [], [], [], [env.reset()]
    for _ in range(STEPS):
        observation, reward, done, info = env.step(np.zeros(2, int))
        for collected, value in ((observations, observation), (rewards, reward), (dones, done), (infos, info)):
            collected.append(value)
    truncated = np.array([[info["TimeLimit.truncated"] for info in step] for step in infos]).T
    done = np.stack(dones, axis=1)
    return np.stack(rewards, axis=1), done & ~truncated, done, infos, observations


@pytest.mark.parametrize("name", VEC_ENVS)
@pytest.mark.parametrize("has_state", [True, False])
def test_rewards_and_ends_are_those_computed_by_hand(name: str, has_state: bool) -> None:
    get_frames = frames_from_observation(front="pixels" if has_state else None)
    env = wrap(make_envs(name, has_state=has_state), get_frames=get_frames)
    assert isinstance(env, LearnedRewardVecEnv)
    rewards, terminated, done, infos, _ = run(env)
    assert rewards.dtype == np.float32 and done.dtype == bool
    np.testing.assert_allclose(rewards, REWARDS, atol=1e-6)
    np.testing.assert_array_equal(terminated, TERMINATED)
    np.testing.assert_array_equal(done, DONE)
    assert [step[0]["next_potential"] for step in infos] == pytest.approx([0.4, 0.8, 0.6, 0.4, 0.6, 1.0])
    assert [step[1]["potential"] for step in infos] == pytest.approx([0.4, 0.2, 0.6, 0.2, 1.0, 0.0])
    env.close()


@pytest.mark.parametrize("name", VEC_ENVS)
def test_success_of_the_model_ends_an_episode_and_resets_its_row(name: str) -> None:
    env = wrap(make_envs(name), **MODEL_SUCCESS)
    rewards, terminated, done, infos, observations = run(env)
    np.testing.assert_allclose(rewards, MODEL_REWARDS, atol=1e-6)
    np.testing.assert_array_equal(terminated, MODEL_TERMINATED)
    np.testing.assert_array_equal(done, MODEL_DONE)
    # Row 1 shows potential 1 in its second episode, which the environment itself would not end yet.
    last, first = infos[3][1]["terminal_observation"], {key: value[1] for key, value in observations[4].items()}
    assert last["pixels"].max() == 255 and last["state"].tolist() == [1, 1]
    assert first["pixels"].max() == 0 and first["state"].tolist() == [2, 0]
    assert infos[3][1]["predicted_success"] and not infos[3][0]["predicted_success"]
    # The last image of row 0 is a success and its time limit: terminal for the learner.
    assert infos[5][0]["terminal_observation"]["state"].tolist() == [2, 3]
    env.close()


def test_success_of_the_model_at_a_time_limit_is_terminal() -> None:
    rewards, terminated, done, _, _ = run(wrap(make_envs(wrapper=TimeLimitsOnly), **MODEL_SUCCESS))
    assert done[0].tolist() == DONE[0].tolist() and terminated[0].tolist() == [False] * 5 + [True]
    np.testing.assert_allclose(rewards[0], [0, 0, 0.3, 0, -0.1, 2.4], atol=1e-6)


def test_the_infos_of_resets_are_those_of_the_new_episodes() -> None:
    venv = make_envs()
    run(wrap(venv, **MODEL_SUCCESS))
    assert [info["episode_index"] for info in venv.reset_infos] == [3, 3]


def test_training_goes_through_the_wrappers_of_stable_baselines3() -> None:
    env = VecExtractDictObs(wrap(make_envs(wrapper=Monitor), **MODEL_SUCCESS), "state")
    monitored = VecMonitor(env)
    model = PPO("MlpPolicy", monitored, n_steps=STEPS, batch_size=2 * STEPS, n_epochs=1, gamma=GAMMA, device="cpu")
    model.learn(2 * STEPS)
    np.testing.assert_allclose(model.rollout_buffer.rewards[[0, 1, 4, 5], 0], MODEL_REWARDS[0, [0, 1, 4, 5]], atol=1e-6)
    returns = [episode["r"] for episode in model.ep_info_buffer]
    assert returns[:2] == pytest.approx([-0.4, 0.3], abs=1e-5), "the monitor outside sees the learned reward"


def test_make_vec_env_is_a_vector_that_can_be_reset_by_rows() -> None:
    venv = make_vec_env(lambda: KnownImageEnv(1), n_envs=2)
    env = wrap(venv, **MODEL_SUCCESS)
    env.reset()
    rewards = np.stack([env.step(np.zeros(2, int))[1] for _ in range(STEPS)])
    np.testing.assert_allclose(rewards, np.stack([MODEL_REWARDS[1]] * 2, axis=1), atol=1e-6)


def test_frames_may_come_from_the_infos_and_the_images_of_the_environment() -> None:
    """For environments that draw, and do not observe, images: the last one is an entry of the info."""

    class DrawingEnv(KnownImageEnv):
        metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
        render_mode = "rgb_array"

        def render(self) -> Any:
            return self.observe()["pixels"]

        def step(self, action: Any) -> Any:
            *result, info = super().step(action)
            return *result, {**info, "image": self.render()}

    venv = DummyVecEnv([lambda: DrawingEnv(0), lambda: DrawingEnv(1)])

    def get_frames(env: Any, observation: Any, rows: np.ndarray) -> dict[str, np.ndarray]:
        return {"front": np.stack(env.get_images())[rows]}

    def get_final_frames(env: Any, infos: Any, rows: np.ndarray) -> dict[str, np.ndarray]:
        return {"front": np.stack([infos["final_info"][row]["image"] for row in rows])}

    rewards = run(wrap(venv, get_frames=get_frames, get_final_frames=get_final_frames))[0]
    np.testing.assert_allclose(rewards, REWARDS, atol=1e-6)
    with pytest.raises(ValueError, match="pass get_final_frames"):
        wrap(venv, get_frames=frames_from_render())


def test_a_vector_that_cannot_reset_one_row_is_refused_for_ends_by_the_model() -> None:
    with pytest.raises(ValueError, match="VecFrameStack cannot reset one row: wrap a DummyVecEnv or SubprocVecEnv"):
        wrap(VecFrameStack(make_envs(has_state=False), 2), **MODEL_SUCCESS)


def test_an_overwritten_terminal_observation_is_noticed() -> None:
    class OneBuffer(KnownImageEnv):
        buffer = np.zeros((8, 8, 3), np.uint8)

        def observe(self) -> Any:
            self.buffer[:] = super().observe()
            return self.buffer

    env = wrap(DummyVecEnv([lambda: OneBuffer(0, False)]), get_frames=frames_from_observation(front=None))
    env.reset()
    env.step(np.zeros(1, int))
    with pytest.warns(UserWarning, match="Wrap each environment in CopyObservation"):
        env.step(np.zeros(1, int))
