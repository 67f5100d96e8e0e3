"""Success criteria of pick-and-place and push tasks, and their sides."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from embodied_sim.control import FloatArray
from embodied_sim.state import SceneState
from embodied_sim.targets import keep_position
from embodied_sim.tasks.pushing import is_path_clear
from embodied_sim.tasks.sides import misperceive_side, side_point
from embodied_sim.vec_env import TabletopVecEnv
from embodied_sim.waypoints import Waypoint


def start_task(task: str) -> tuple[TabletopVecEnv, SceneState]:
    """Return eight environments of a task and their start state."""
    env = TabletopVecEnv(task, 8, autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=5)
    state = env.state
    env.close()
    return env, state


def move_object(state: SceneState, role: int, position: FloatArray) -> SceneState:
    """Return the state with the object in that role at `position` [N, 3]."""
    objects = state.object_positions.copy()
    objects[np.arange(len(state)), state.object_order[:, role]] = position
    return replace(state, object_positions=objects)


@pytest.mark.parametrize("task", ["place_in_bowl", "stack_cubes", "sort_two"])
def test_object_is_placed_when_at_its_target_and_released(task):
    env, state = start_task(task)
    assert not env.task.success(state).any()
    offsets = env.task.extra_observation(state)
    for role, offset in enumerate(offsets):
        state = move_object(state, role, state.object_position(role) - offset)
    held = replace(state, tool_pos=state.object_position(len(offsets) - 1), gripper_opening=np.full(8, 0.05))
    assert not env.task.success(held).any()
    assert env.task.success(replace(held, gripper_opening=np.full(8, 0.08))).all()
    assert env.task.success(replace(held, tool_pos=held.tool_pos + np.array([0.0, 0.0, 0.1]))).all()
    raised = move_object(held, 0, held.object_position() + np.array([0.0, 0.0, 0.03]))
    assert not env.task.success(replace(raised, gripper_opening=np.full(8, 0.08))).any()


@pytest.mark.parametrize(("task", "kind"), [("push_to_zone", "zone"), ("sort_two", "tray")])
def test_left_is_the_robots_left(task, kind):
    env, state = start_task(task)
    y = side_point(state, kind)[:, 1]
    assert {env.task.sides[side] for side in state.side_index} == {"left", "right"}
    assert np.array_equal(y > 0, state.side_index == 0)
    assert np.array_equal(
        side_point(state, kind, other_side=True), side_point(replace(state, side_index=1 - state.side_index), kind)
    )
    (swapped,) = misperceive_side((Waypoint(lambda perceived, _: side_point(perceived, kind), 0.0),))
    assert np.array_equal(swapped.target(state, state.tool_pos), side_point(state, kind, other_side=True))
    (unchanged,) = misperceive_side((Waypoint(keep_position, 0.0),))
    assert np.array_equal(unchanged.target(state, state.tool_pos), state.tool_pos)


def test_pushed_object_must_be_fully_inside_the_target_zone():
    env, state = start_task("push_to_zone")
    zone = side_point(state, "zone") + np.array([0.0, 0.0, 0.025])
    assert env.task.success(move_object(state, 0, zone)).all()
    assert not env.task.success(move_object(state, 1, zone)).any()
    assert not env.task.success(move_object(state, 0, side_point(state, "zone", other_side=True))).any()
    for offset in ([0.04, 0.0, 0.0], [0.0, -0.04, 0.0], [0.0, 0.0, 0.03]):
        assert not env.task.success(move_object(state, 0, zone + offset)).any()


@pytest.mark.parametrize(
    ("other", "clear"),
    [
        ([0.4, 0.0], False),  # blocks the push across
        ([0.4, -0.17], False),  # where the hand is lowered
        ([0.55, 0.13], False),  # blocks the push forward
        ([0.55, -0.1], True),
    ],
)
def test_path_is_clear_of_distant_objects(other, clear):
    assert is_path_clear(np.array([0.4, -0.1]), np.array(other), np.array([0.66, 0.13])) is clear
