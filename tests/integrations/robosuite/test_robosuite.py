"""Environments of robosuite with a learned reward. `make test-robosuite` runs this."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import robosuite
from gymnasium.utils.env_checker import check_env
from robosuite import macros
from robosuite.wrappers import GymWrapper

import embodied_rm as erm
from embodied_rm.client.integrations.robosuite import RobosuiteEnv

VIEWS = {"front": "agentview", "wrist": "robot0_eye_in_hand"}
GAMMA, HORIZON = 0.9, 6
INSTRUCTION = "lift the cube"


def make_task(**options: Any) -> Any:
    size = {"camera_heights": 64, "camera_widths": 64, "camera_names": list(VIEWS.values())}
    defaults = {"has_renderer": False, "use_camera_obs": True, "horizon": HORIZON, **size}
    return robosuite.make("Lift", robots="Panda", **{**defaults, **options})


@pytest.fixture(scope="module")
def model() -> erm.ProgressRewardModel:
    return erm.load_reward_model()


@pytest.fixture
def env() -> Any:
    env = RobosuiteEnv(make_task(), VIEWS)
    yield env
    env.close()


def test_it_is_a_gymnasium_environment(env: RobosuiteEnv) -> None:
    check_env(env, skip_render_check=True)
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    assert not any(key.endswith("_image") for key in observation)


def test_a_seed_repeats_an_episode(env: RobosuiteEnv) -> None:
    starts = [env.reset(seed=seed)[0]["cube_pos"] for seed in (3, 3, 4)]
    assert np.array_equal(starts[0], starts[1]) and not np.allclose(starts[0], starts[2])


@pytest.mark.parametrize("convention", ["opengl", "opencv"])
def test_images_are_upright(convention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the front, the gray robot is above the white table, in either convention of robosuite."""
    monkeypatch.setattr(macros, "IMAGE_CONVENTION", convention)
    env = RobosuiteEnv(make_task(), VIEWS)
    env.reset(seed=0)
    front = env.render_views()[0, 0].astype(int)
    env.close()
    upper, lower = front[:20].mean(), front[-20:].mean()
    assert lower > upper + 20


def test_the_horizon_is_a_time_limit(env: RobosuiteEnv) -> None:
    env.reset(seed=0)
    ends = [env.step(np.zeros(env.action_space.shape, np.float32))[2:4] for _ in range(HORIZON)]
    assert ends == [(False, False)] * (HORIZON - 1) + [(False, True)]


def lift(task: Any) -> None:
    """Put the cube in the air."""
    cube = task.cube.joints[0]
    pose = task.sim.data.get_joint_qpos(cube)
    task.sim.data.set_joint_qpos(cube, [*pose[:2], pose[2] + 0.3, *pose[3:]])
    task.sim.forward()


def test_success_is_that_of_the_task_and_ends_nothing(env: RobosuiteEnv) -> None:
    env.reset(seed=0)
    action = np.zeros(env.action_space.shape, np.float32)
    assert env.step(action)[4]["success"] is False
    lift(env.env)
    _, _, terminated, truncated, infos = env.step(action)
    assert (terminated, truncated, infos["success"]) == (False, False, True)


class LiberoEnv:
    """An environment around robosuite's, whose success is its end: the interface of LIBERO's `ControlEnv`."""

    def __init__(self, task: Any) -> None:
        self.env = task

    def reset(self) -> Any:
        return self.env.reset()

    def step(self, action: Any) -> Any:
        observation, reward, done, info = self.env.step(action)
        return observation, reward, done or self.env._check_success(), info

    def close(self) -> None:
        self.env.close()


def test_success_of_libero_is_an_end() -> None:
    env = RobosuiteEnv(LiberoEnv(make_task()), VIEWS)
    env.reset(seed=0)
    action = np.zeros(env.action_space.shape, np.float32)
    assert env.step(action)[2:4] == (False, False)
    lift(env.env.env)
    assert env.step(action)[2:4] == (True, False)
    env.close()


def test_progress_shapes_the_reward(env: RobosuiteEnv, model: erm.ProgressRewardModel) -> None:
    rewarded = erm.LearnedReward(env, model, instruction=INSTRUCTION, gamma=GAMMA)
    rewarded.reset(seed=0)
    frames = [env.render_views()[0]]
    rewards, task_rewards = [], []
    for _ in range(HORIZON):
        _, reward, _, _, infos = rewarded.step(env.action_space.sample())
        frames.append(env.render_views()[0])
        rewards.append(reward)
        task_rewards.append(reward - (GAMMA * infos["next_potential"] - infos["potential"]))
    stacked = np.stack(frames)
    views = {name: stacked[:, index] for index, name in enumerate(env.view_names)}
    phi = model.score(views, INSTRUCTION).progress
    np.testing.assert_allclose(rewards, GAMMA * phi[1:] - phi[:-1] + np.array(task_rewards), atol=1e-5)
    np.testing.assert_allclose(task_rewards, 0, atol=1e-5)


def test_a_vector_of_them_is_refinable(model: erm.ProgressRewardModel) -> None:
    def images(env: Any) -> dict[str, np.ndarray]:
        return dict(zip(env.view_names, env.render_views()[0], strict=True))

    def make_env() -> Any:
        return RobosuiteEnv(make_task(), VIEWS)

    envs = erm.CameraVectorEnv(make_env, 2, instruction=INSTRUCTION, get_images=images)
    rewarded = erm.LearnedReward(envs, model, instruction=INSTRUCTION)
    rewarded.reset(seed=0)
    _, reward, _, _, infos = rewarded.step(np.zeros((2, envs.single_action_space.shape[0]), np.float32))
    assert reward.shape == (2,) and infos["success"].tolist() == [False, False]
    envs.close()


def test_what_does_not_fit_is_named(model: erm.ProgressRewardModel) -> None:
    task = make_task()
    for env in (task, GymWrapper(task)):
        with pytest.raises(erm.UserError, match=r"integrations\.robosuite\.RobosuiteEnv\(env, views="):
            erm.LearnedReward(env, model, instruction=INSTRUCTION)
    with pytest.raises(ValueError, match="of the camera 'sideview', and the environment draws agentview, "):
        RobosuiteEnv(task, {"side": "sideview"})
    task.close()
