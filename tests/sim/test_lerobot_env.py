"""The environment of LeRobot's plugin has the observations and ends that `lerobot-eval` reads; needs no `lerobot`."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from omegaconf import OmegaConf

from embodied_sim.adapters.lerobot_env import LeRobotEnv
from embodied_sim.scripted_policy import ScriptedPolicy
from embodied_sim.sim_errors import SimError
from embodied_sim.vec_env import TabletopVecEnv

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def envs():
    vector = SyncVectorEnv([lambda: LeRobotEnv("lift_cube")] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    yield vector
    vector.close()


def test_observations_are_the_images_and_the_state_that_collect_records(envs):
    observation, _ = envs.reset(seed=[3, 9], options={"lerobot_new_rollout": True})
    assert envs.observation_space.contains(observation)
    recorded = OmegaConf.load(ROOT / "configs" / "env" / "cpu.yaml")
    same = TabletopVecEnv("lift_cube", 2, views=recorded.views, image_size=recorded.image_size)
    state, _ = same.reset(seed=[3, 9])
    np.testing.assert_array_equal(observation["agent_pos"], state)
    assert list(observation["pixels"]) == list(recorded.views) == ["front", "wrist"]
    np.testing.assert_array_equal(np.stack(list(observation["pixels"].values()), axis=1), same.render_views())
    assert envs.call("task_description") == same.instructions and envs.call("task") == ("lift_cube",) * 2
    assert envs.call("_max_episode_steps") == (60, 60) and envs.metadata["render_fps"] == 20
    same.close()


def test_an_episode_ends_at_success_with_is_success_in_its_final_info(envs):
    envs.reset(seed=0)
    expert = ScriptedPolicy(envs.envs[0].tabletop_env.vec_env)
    expert.reset(np.arange(1))
    for _ in range(60):
        action = np.concatenate([expert.act(), np.zeros((1, 4), np.float32)])
        _, reward, terminated, _, infos = envs.step(action)
        assert not infos["is_success"].any(), "with SAME_STEP, these infos are of the next episode"
        if terminated.any():
            break
    assert terminated.tolist() == [True, False] and reward.tolist() == [1, 0]
    assert infos["final_info"]["is_success"].tolist() == [True, False]
    for _ in range(60):
        _, _, _, truncated, infos = envs.step(np.zeros((2, 4), np.float32))
        if truncated[1]:
            break
    assert infos["final_info"]["is_success"].tolist() == [False, False], "the time limit is no success"


def test_wrong_settings_are_named_with_the_choices():
    with pytest.raises(SimError, match=r"unknown obs_type 'pixel'. Did you mean 'pixels'\?"):
        LeRobotEnv("lift_cube", obs_type="pixel")
    with pytest.raises(SimError, match="unknown view 'top'"):
        LeRobotEnv("lift_cube", views=["top"])
    with pytest.raises(SimError, match="Did you mean 'lift_cube'"):
        LeRobotEnv("lift_cub")
    env = LeRobotEnv("lift_cube", views=["side"], image_size=32, obs_type="pixels")
    observation, _ = env.reset(seed=0)
    assert list(observation) == ["pixels"] and env.render().shape == observation["pixels"]["side"].shape == (32, 32, 3)
    assert isinstance(env.observation_space, gym.spaces.Dict) and env.observation_space.contains(observation)
    env.close()
