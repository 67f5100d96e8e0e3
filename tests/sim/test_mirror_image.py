"""Mirror images of scenes."""

import numpy as np
import pytest

from embodied_sim.mirror_image import MIRRORED_ACTIONS, mirror_state, mirrored_columns, observe
from embodied_sim.sim_errors import SimError
from embodied_sim.vec_env import TabletopVecEnv


def test_the_columns_of_the_lever_are_those_along_y_and_its_angle() -> None:
    tool, commanded, lever = 1, 4, 7
    pivot, handle, relative_pivot, relative_handle, contact = 9, 12, 15, 18, 21
    expected = (tool, commanded, lever, pivot, handle, relative_pivot, relative_handle, contact)
    assert mirrored_columns("turn_lever") == expected, "the angle in the named direction keeps its sign"


@pytest.mark.parametrize("task", ["turn_lever", "open_drawer", "close_drawer", "press_button", "stack_cubes"])
def test_the_columns_hold_in_every_state_of_an_episode(task: str) -> None:
    env, columns = TabletopVecEnv(task, 4), list(mirrored_columns(task))
    observation, _ = env.reset(seed=5)
    signs = np.ones(observation.shape[1])
    signs[columns] = -1
    for _ in range(10):
        env.step(np.random.default_rng(0).uniform(-1, 1, (4, 4)).astype(np.float32))
        mirrored = observe(env.task, mirror_state(env.task, env.state))
        assert mirrored == pytest.approx(signs * observe(env.task, env.state), abs=1e-6)
    env.close()


def test_mirrored_actions_move_the_tool_on_the_mirrored_path() -> None:
    """The first three columns are the position of the tool; nothing is in its way."""
    actions = np.random.default_rng(1).uniform(-0.5, 0.5, (8, 3, 4)).astype(np.float32)
    mirrored_actions = actions.copy()
    mirrored_actions[..., list(MIRRORED_ACTIONS)] *= -1
    paths = []
    for sequence in (actions, mirrored_actions):
        env = TabletopVecEnv("turn_lever", 3)
        start, _ = env.reset(seed=2)
        paths.append(np.array([env.step(action)[0][:, :3] - start[:, :3] for action in sequence]))
        env.close()
    assert np.abs(paths[0][..., 1]).max() > 0.02
    assert paths[1] == pytest.approx(paths[0] * [1, -1, 1], abs=0.004)


@pytest.mark.parametrize("task", ["push_to_zone", "sort_two"])
def test_a_scene_that_names_its_left_has_no_mirror_image(task: str) -> None:
    with pytest.raises(SimError, match=f"{task} has no mirror image"):
        mirrored_columns(task)
