"""What the tasks with places to put things call done, and which side is which."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from embodied_sim.control import FloatArray
from embodied_sim.state import SceneState
from embodied_sim.tasks.pushing import is_path_clear
from embodied_sim.tasks.sides import misperceive_side, side_point
from embodied_sim.vec_env import TabletopVecEnv
from embodied_sim.waypoints import Waypoint, keep_position


def started(task: str) -> tuple[TabletopVecEnv, SceneState]:
    """Eight worlds of a task at the start."""
    env = TabletopVecEnv(task, 8, autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=5)
    state = env.state
    env.close()
    return env, state


def put(state: SceneState, role: int, place: FloatArray) -> SceneState:
    """The state with the object in that role at `place` [N, 3]."""
    objects = state.object_positions.copy()
    objects[np.arange(len(state)), state.object_order[:, role]] = place
    return replace(state, object_positions=objects)


@pytest.mark.parametrize("task", ["place_in_bowl", "stack_cubes", "sort_two"])
def test_a_thing_is_placed_when_it_is_in_its_place_and_let_go_of(task):
    env, state = started(task)
    assert not env.task.success(state).any()
    off = env.task.extra_observation(state)
    for role, vector in enumerate(off):
        state = put(state, role, state.object_position(role) - vector)
    held = replace(state, tool_pos=state.object_position(len(off) - 1), gripper_opening=np.full(8, 0.05))
    assert not env.task.success(held).any()
    assert env.task.success(replace(held, gripper_opening=np.full(8, 0.08))).all()
    assert env.task.success(replace(held, tool_pos=held.tool_pos + np.array([0.0, 0.0, 0.1]))).all()
    aloft = put(held, 0, held.object_position() + np.array([0.0, 0.0, 0.03]))
    assert not env.task.success(replace(aloft, gripper_opening=np.full(8, 0.08))).any()


@pytest.mark.parametrize(("task", "kind"), [("push_to_zone", "zone"), ("sort_two", "tray")])
def test_left_is_the_robots_left(task, kind):
    env, state = started(task)
    y = side_point(state, kind)[:, 1]
    assert {env.task.sides[side] for side in state.side_index} == {"left", "right"}
    assert np.array_equal(y > 0, state.side_index == 0)
    assert np.array_equal(
        side_point(state, kind, other_side=True), side_point(replace(state, side_index=1 - state.side_index), kind)
    )
    (swapped,) = misperceive_side((Waypoint(lambda seen, _: side_point(seen, kind), 0.0),))
    assert np.array_equal(swapped.target(state, state.tool_pos), side_point(state, kind, other_side=True))
    (kept,) = misperceive_side((Waypoint(keep_position, 0.0),))
    assert np.array_equal(kept.target(state, state.tool_pos), state.tool_pos)


def test_all_of_a_pushed_thing_must_be_in_the_zone_that_is_meant():
    env, state = started("push_to_zone")
    zone = side_point(state, "zone") + np.array([0.0, 0.0, 0.025])
    assert env.task.success(put(state, 0, zone)).all()
    assert not env.task.success(put(state, 1, zone)).any()
    assert not env.task.success(put(state, 0, side_point(state, "zone", other_side=True))).any()
    for off in ([0.04, 0.0, 0.0], [0.0, -0.04, 0.0], [0.0, 0.0, 0.03]):
        assert not env.task.success(put(state, 0, zone + off)).any()


@pytest.mark.parametrize(
    ("other", "clear"),
    [
        ([0.4, 0.0], False),  # in the way across
        ([0.4, -0.17], False),  # where the hand comes down
        ([0.55, 0.13], False),  # in the way on
        ([0.55, -0.1], True),
    ],
)
def test_a_way_is_clear_of_what_stands_off_it(other, clear):
    assert is_path_clear(np.array([0.4, -0.1]), np.array(other), np.array([0.66, 0.13])) is clear
