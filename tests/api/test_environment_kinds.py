"""Environments as libraries make them: how they reset, and where their frames are."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from image_envs import (
    LENGTH,
    ROWS,
    BatchedEnv,
    ImageEnv,
    TorchEnvs,
    check_two_episodes,
    image,
    wrap,
)

import embodied_rm as erm
from embodied_rm.client import CopyObservation, frames_from_observation, frames_from_render


@pytest.fixture(scope="module")
def model() -> erm.ProgressRewardModel:
    return erm.load_reward_model()


@pytest.mark.parametrize("spelling", [AutoresetMode.SAME_STEP, "SAME_STEP", "SameStep", "same-step", "same_step"])
@pytest.mark.parametrize("declared_by", ["metadata", "argument"])
@pytest.mark.parametrize("key", ["final_obs", "final_observation"])
def test_every_spelling_of_the_mode_and_of_final_observations_is_read(
    model: erm.ProgressRewardModel, spelling: Any, declared_by: str, key: str
) -> None:
    metadata = {"autoreset_mode": spelling} if declared_by == "metadata" else {}
    options = {"autoreset_mode": spelling} if declared_by == "argument" else {}
    check_two_episodes(wrap(BatchedEnv(metadata, key), model, **options), model)


def test_final_observations_of_gymnasiums_own_vectors_are_read(model: erm.ProgressRewardModel) -> None:
    envs = SyncVectorEnv([ImageEnv] * ROWS, autoreset_mode=AutoresetMode.SAME_STEP)
    check_two_episodes(wrap(envs, model), model)


def test_an_environment_that_declares_no_mode_is_refused(model: erm.ProgressRewardModel) -> None:
    with pytest.raises(
        ValueError, match=r"BatchedEnv does not declare when it resets .* pass autoreset_mode='SAME_STEP'"
    ):
        wrap(BatchedEnv({}), model)
    with pytest.raises(
        ValueError, match="unknown autoreset_mode 'sometimes': expected SAME_STEP, NEXT_STEP or DISABLED"
    ):
        wrap(BatchedEnv({}), model, autoreset_mode="sometimes")


@pytest.mark.parametrize("mode", ["NEXT_STEP", "DISABLED"])
@pytest.mark.parametrize("key", ["final_obs", "final_observation", "final_info", "terminal_observation", "last_obs"])
def test_a_wrong_declaration_is_found_when_an_episode_ends(model: erm.ProgressRewardModel, mode: str, key: str) -> None:
    env = wrap(BatchedEnv({"autoreset_mode": mode}, key), model)
    env.reset()
    with pytest.raises(ValueError, match=f"declares {mode}, and its infos have '{key}'"):
        for _ in range(LENGTH):
            env.step(np.zeros(ROWS, int))


def test_one_environment_that_resets_itself_is_refused(model: erm.ProgressRewardModel) -> None:
    env = gym.wrappers.TransformReward(gym.wrappers.Autoreset(ImageEnv()), float)
    with pytest.raises(ValueError, match="leave out the wrapper Autoreset: one environment must not reset itself"):
        wrap(env, model)
    with pytest.raises(ValueError, match="autoreset_mode='same-step': one environment must not reset itself"):
        wrap(ImageEnv(), model, autoreset_mode="same-step")
    assert wrap(ImageEnv(), model, autoreset_mode="DISABLED").reset()


class StepsWithInfos(gym.Wrapper):
    """Returns other infos and another reward than its environment."""

    def __init__(self, env: gym.Env, infos: dict[str, Any], reward: Any = 0.0) -> None:
        super().__init__(env)
        self.infos, self.reward = infos, reward

    def step(self, action: Any) -> Any:
        observation, _, terminated, truncated, _ = super().step(action)
        return observation, self.reward, terminated, truncated, self.infos


def test_one_environment_that_seems_to_reset_itself_is_refused_at_an_end(model: erm.ProgressRewardModel) -> None:
    env = wrap(StepsWithInfos(ImageEnv(), {"final_observation": image(0, LENGTH)}), model)
    env.reset()
    with pytest.raises(ValueError, match="infos of an ended episode have 'final_observation': one environment must"):
        for _ in range(LENGTH):
            env.step(0)


def test_several_environments_without_num_envs_are_refused(model: erm.ProgressRewardModel) -> None:
    env = wrap(StepsWithInfos(ImageEnv(), {}, reward=np.zeros(2)), model)
    env.reset()
    with pytest.raises(ValueError, match="step returned 2 rewards: an environment that steps several needs"):
        env.step(0)
    one = wrap(StepsWithInfos(ImageEnv(), {}, reward=torch.zeros(1)), model)
    one.reset()
    assert isinstance(one.step(0)[1], float)


def test_an_episode_that_ends_without_its_final_observation_is_refused(model: erm.ProgressRewardModel) -> None:
    env = wrap(BatchedEnv({}, key="last"), model, autoreset_mode="SAME_STEP")
    env.reset()
    with pytest.raises(ValueError, match="neither final_obs nor final_observation; they have _last, last"):
        for _ in range(LENGTH):
            env.step(np.zeros(ROWS, int))


def test_a_missing_entry_is_refused_with_those_that_are_there(model: erm.ProgressRewardModel) -> None:
    env = wrap(BatchedEnv({}), model, autoreset_mode="DISABLED", get_frames=frames_from_observation(front="image"))
    with pytest.raises(ValueError, match="the observation has no entry 'image'; it has pixels/top"):
        env.reset()


def test_overwritten_final_observations_are_noticed_and_copied(model: erm.ProgressRewardModel) -> None:
    def make(wrapper: Any) -> SyncVectorEnv:
        return SyncVectorEnv([lambda: wrapper(ImageEnv(reuse_buffer=True))] * ROWS, autoreset_mode="SameStep")

    overwritten = wrap(make(lambda env: env), model)
    overwritten.reset()
    with pytest.warns(UserWarning, match="one buffer\\? Wrap each environment in CopyObservation"):
        for _ in range(LENGTH):
            overwritten.step(np.zeros(ROWS, int))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_two_episodes(wrap(make(CopyObservation), model), model)


def test_other_objects_and_images_are_refused(model: erm.ProgressRewardModel) -> None:
    with pytest.raises(erm.UserError, match="list is no environment: it has no reset and step"):
        wrap([], model)
    with pytest.raises(erm.UserError, match="TorchEnvs draws nothing"):
        wrap(TorchEnvs(), model, get_frames=None, autoreset_mode="SAME_STEP")
    floats = wrap(TorchEnvs(), model, autoreset_mode="SAME_STEP",
                  get_frames=lambda env, observation, rows: {"front": observation["pixels"]["top"][rows] / 255},
                  get_final_frames=lambda *args: {})  # fmt: skip
    with pytest.raises(erm.UserError, match="frames must be uint8"):
        floats.reset()
    with pytest.raises(ValueError, match="pass get_final_frames"):
        wrap(BatchedEnv({}), model, autoreset_mode="SAME_STEP", get_frames=frames_from_render())
