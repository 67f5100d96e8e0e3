"""Gymnasium interface: every task has an id and passes the checker; one environment equals row 0 of many."""

import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from embodied_sim.gym_envs import gym_id
from embodied_sim.registry import task_names
from embodied_sim.scripted_policy import ScriptedPolicy
from embodied_sim.sim_errors import SimError
from embodied_sim.single_env import OBS_BOUND, TabletopEnv
from embodied_sim.vec_env import SUCCESS_HOLD_STEPS, TabletopVecEnv


def test_ids_are_names_in_camel_case():
    assert gym_id("open_drawer") == "embodied_rm/OpenDrawer-v0"
    assert {gym_id(task) for task in task_names()} == {id_ for id_ in gym.registry if id_.startswith("embodied_rm/")}


@pytest.mark.parametrize("task", task_names())
def test_every_task_passes_the_gymnasium_checker(task):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make(gym_id(task))
        check_env(env.unwrapped)
        env.close()


@pytest.mark.parametrize("mode", [None, "vector_entry_point"])
def test_make_vec_creates_a_vector_environment(mode):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make_vec("embodied_rm/OpenDrawer-v0", num_envs=8, vectorization_mode=mode, views=("side",))
    assert isinstance(env, TabletopVecEnv)
    assert (env.num_envs, env.task.name, env.view_names) == (8, "open_drawer", ("side",))
    env.close()


def test_one_environment_equals_row_0_of_many():
    one, many = gym.make("embodied_rm/LiftCube-v0"), gym.make_vec("embodied_rm/LiftCube-v0", num_envs=3)
    observation, info = one.reset(seed=4)
    rows, infos = many.reset(seed=4)
    truncated = False
    for action in np.random.default_rng(0).uniform(-1, 1, (60, 4)).astype(np.float32):
        assert not truncated
        np.testing.assert_array_equal(observation, rows[0])
        assert info == {name: infos[name][0].item() for name in ("success", "progress", "subtask", "diverged")}
        assert one.unwrapped.instruction == many.instructions[0]
        observation, _, _, truncated, info = one.step(action)
        rows, _, _, _, infos = many.step(np.tile(action, (3, 1)))
    assert truncated, "the time limit"
    np.testing.assert_array_equal(observation, infos["final_obs"][0])
    one.close(), many.close()


def test_images_show_the_views_side_by_side():
    env = gym.make("embodied_rm/LiftCube-v0", render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().shape == (256, 256, 3)
    env.close()
    env = gym.make("embodied_rm/LiftCube-v0", render_mode="rgb_array", views=("wrist", "front"), image_size=64)
    env.reset(seed=0)
    image, views = env.render(), env.unwrapped.vec_env.render_views()[0]
    np.testing.assert_array_equal(image[:, :64], views[0])
    np.testing.assert_array_equal(image[:, 64:], views[1])
    assert views[1].std() > 10, "an empty image"
    env.close()


@pytest.mark.parametrize("ends", [True, False])
def test_success_is_reported_and_optionally_ends_the_episode(ends):
    env = gym.make("embodied_rm/LiftCube-v0", ends_on_success=ends)
    env.reset(seed=1)
    expert = ScriptedPolicy(env.unwrapped.vec_env)
    expert.reset(np.array([0]))
    rewards, successes, done = [], [], False
    while not done:
        _, reward, terminated, truncated, info = env.step(expert.act()[0])
        rewards.append(reward), successes.append(info["success"])
        done = terminated or truncated
    assert sum(rewards) == 1 and rewards[successes.index(True)] == 1
    assert terminated == ends
    assert (successes.count(True) == 1) == ends
    assert info["progress"] == 1
    env.close()


def test_fallen_objects_stay_inside_the_observation_space():
    env = TabletopEnv("lift_cube")
    env.reset(seed=0)
    address = env.vec_env.model.joint("red").qposadr[0]
    env.vec_env._backend.qpos[0, address + 2] = -40.0
    for _ in range(SUCCESS_HOLD_STEPS):
        observation, *_ = env.step(np.zeros(4, np.float32))
    assert observation in env.observation_space
    assert np.abs(observation).max() == OBS_BOUND
    env.close()


def test_module_in_the_id_needs_no_import():
    script = """
import gymnasium
print(gymnasium.make('embodied_sim:embodied_rm/CubeInDrawer-v0').unwrapped.vec_env.task.name)
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "cube_in_drawer\n"


def test_invalid_arguments_are_errors():
    with pytest.raises(gym.error.NameNotFound, match="LiftCube"):
        gym.make("embodied_rm/LiftCub-v0")
    with pytest.raises(SimError, match=r"unknown view 'frnt'\. Did you mean 'front'\?"):
        gym.make("embodied_rm/LiftCube-v0", views=("frnt",))
    with pytest.raises(SimError, match="unknown render_mode 'depth'"):
        TabletopEnv("lift_cube", render_mode="depth")
    env = TabletopEnv("lift_cube")
    with pytest.raises(SimError, match="render_mode='rgb_array'"):
        env.render()
    env.close()
