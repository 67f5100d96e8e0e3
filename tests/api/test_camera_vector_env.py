"""`CameraVectorEnv`: any Gymnasium environment, as refinement needs it."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest

import embodied_rm as erm
from embodied_rm.api.camera_vector_env import read_success

LIMIT_STEPS = 6


class Slider(gym.Env):
    """A slider at x is moved by actions in [0, 2]; beyond 3 it is a success, which ends the episode."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 5}
    render_mode = "rgb_array"
    action_space = gym.spaces.Box(np.zeros(1, np.float32), np.full(1, 2, np.float32))
    observation_space = gym.spaces.Dict(
        camera=gym.spaces.Box(0, 255, (4, 6, 3), np.uint8),
        robot=gym.spaces.Dict(x=gym.spaces.Box(-9, 9, (1,), np.float64), gear=gym.spaces.Discrete(3)),
        goal=gym.spaces.Box(-9, 9, (2,), np.float32),
    )

    def __init__(self, success_key: str = "is_success") -> None:
        self.success_key = success_key

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.x = float(self.np_random.uniform(0, 0.1))
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.x += float(action[0])
        return self._observation(), 0.0, self.x > 3, False, {self.success_key: self.x > 3}

    def render(self) -> Any:
        return np.full((4, 6, 3), int(np.nan_to_num(self.x) * 10), np.uint8)

    def _observation(self) -> dict[str, Any]:
        return {"goal": np.ones(2, np.float32), "robot": {"gear": 2, "x": np.array([self.x])}, "camera": self.render()}


def make_slider(**keys: Any) -> gym.Env:
    return gym.wrappers.TimeLimit(Slider(**keys), LIMIT_STEPS)


def make_envs(num_envs: int = 2, **keys: Any) -> erm.CameraVectorEnv:
    return erm.CameraVectorEnv(make_slider, num_envs, instruction="push", **keys)


def test_observations_are_the_numbers_and_actions_are_between_minus_one_and_one() -> None:
    envs = make_envs()
    observation, infos = envs.reset(seed=3)
    positions = [env.unwrapped.x for env in envs.envs]
    # In the order of the space, not of the dictionary of a step: robot/x, robot/gear, goal. The image is left out.
    assert observation.dtype == np.float32 and observation.tolist() == [[np.float32(x), 2, 1, 1] for x in positions]
    assert not infos["success"].any() and not infos["diverged"].any()
    observation, _, _, _, _ = envs.step(np.array([[-1.0], [5.0]]))  # nothing, and more than the most: 2
    np.testing.assert_allclose(observation[:, 0] - positions, [0, 2], atol=1e-6)
    assert envs.single_action_space == gym.spaces.Box(-1, 1, (1,))


def test_success_ends_an_episode_only_where_it_should() -> None:
    for ends_on_success in (False, True):
        envs = make_envs(ends_on_success=ends_on_success)
        envs.reset(seed=0)
        envs.step(np.array([[1.0], [-1.0]]))
        _, _, terminated, truncated, infos = envs.step(np.array([[1.0], [-1.0]]))
        assert infos["success"].tolist() == [True, False]
        assert terminated.tolist() == [ends_on_success, False] and not truncated.any()


class LastStepAlone(gym.Wrapper):
    """States success in the last step of an episode alone."""

    def step(self, action: Any) -> Any:
        *result, infos = super().step(action)
        return (*result, infos if result[2] or result[3] else {})


@pytest.mark.parametrize("success_key", [None, "is_success"])
def test_success_may_be_stated_in_the_last_step_alone(success_key: str | None) -> None:
    envs = erm.CameraVectorEnv(lambda: LastStepAlone(make_slider()), 1, instruction="push", success_key=success_key)
    envs.reset(seed=0)
    stated = [bool(envs.step(np.ones((1, 1)))[4]["success"][0]) for _ in range(2)]
    assert stated == [False, True]
    envs = erm.CameraVectorEnv(lambda: LastStepAlone(make_slider()), 1, instruction="push", success_key="done_well")
    envs.reset(seed=0)
    with pytest.raises(erm.UserError, match="unknown info of a step 'done_well'"):
        for _ in range(2):
            envs.step(np.ones((1, 1)))


def test_rows_are_reset_by_the_mask_and_limited_in_time() -> None:
    envs = make_envs()
    envs.reset(seed=0)
    for _ in range(LIMIT_STEPS):
        observation, _, terminated, truncated, _ = envs.step(np.zeros((2, 1)))
    assert not terminated.any() and truncated.all()
    after, infos = envs.reset(options={"reset_mask": np.array([True, False])})
    assert after[0, 0] < 0.1 and after[1, 0] == observation[1, 0] and infos["success"].tolist() == [False, False]


def test_cameras_draw_the_rows_that_are_asked_for() -> None:
    envs = make_envs(3)
    envs.reset(seed=0)
    envs.step(np.array([[-1.0], [0.0], [0.5]]))
    frames = envs.render_views(np.array([2, 0]))
    assert envs.view_names == ("front",) and frames.shape == (2, 1, 4, 6, 3)
    assert [frame.max() for frame in frames] == [int(envs.envs[row].unwrapped.x * 10) for row in (2, 0)]


def test_instructions_are_those_of_the_episode() -> None:
    envs = erm.CameraVectorEnv(make_slider, 2, instruction=lambda env: f"push from {env.unwrapped.x:.4f}")
    envs.reset(seed=0)
    first = envs.instructions
    assert first == tuple(f"push from {env.unwrapped.x:.4f}" for env in envs.envs)
    envs.reset(options={"reset_mask": np.array([True, False])})
    assert envs.instructions[0] != first[0] and envs.instructions[1] == first[1]


def test_a_divergence_is_no_success() -> None:
    envs = make_envs()
    envs.reset(seed=0)
    envs.envs[0].unwrapped.x = np.nan
    _, _, _, _, infos = envs.step(np.ones((2, 1)))
    assert infos["diverged"].tolist() == [True, False] and not infos["success"].any()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"success_key": "is_sucess"}, "unknown info of a step 'is_sucess'. Did you mean 'is_success'"),
        (
            {"get_images": lambda env: {"a": np.zeros((2, 2, 3), np.uint8), "b": np.zeros((3, 2, 3), np.uint8)}},
            "one size",
        ),
        ({"get_images": lambda env: {"a": np.zeros((2, 2, 3))}}, "must return uint8"),
    ],
)
def test_mistakes_are_one_sentence(keys: dict[str, Any], message: str) -> None:
    envs = make_envs(**keys)
    with pytest.raises(erm.UserError, match=message.replace(".", r"\.")):
        envs.step(np.zeros((2, 1)))
        envs.render_views(np.arange(2))


def test_other_spaces_are_refused() -> None:
    with pytest.raises(erm.UserError, match="must be a bounded Box"):
        erm.CameraVectorEnv(lambda: gym.make("CartPole-v1"), 1, instruction="balance")
    with pytest.raises(erm.UserError, match="num_envs must be >= 1"):
        make_envs(0)
    with pytest.raises(erm.UserError, match=r'make the environment with render_mode="rgb_array"'):
        erm.CameraVectorEnv(lambda: gym.make("Pendulum-v1"), 1, instruction="swing")


@pytest.mark.parametrize(
    ("infos", "expected"),
    [
        ({"success": np.array([False])}, False),
        ({"success": np.bool_(True)}, True),
        ({"success": 1.0}, True),
        ({"success": {"task": False, "grasp": True}}, False),
        ({"is_success": None, "success": True}, True),
    ],
)
def test_success_is_read_in_the_forms_of_other_libraries(infos: dict[str, Any], expected: bool) -> None:
    assert read_success(infos, None, True) is expected


@pytest.mark.parametrize("value", [np.nan, 0.3, -1, "False", (0, 1), [True, False], {"grasp": True}])
def test_a_success_that_is_neither_true_nor_false_is_an_error(value: Any) -> None:
    with pytest.raises(erm.UserError, match="the info 'success' of a step must be true or false, got"):
        read_success({"success": value}, None, False)
