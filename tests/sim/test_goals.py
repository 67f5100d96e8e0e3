"""What the tasks with places to put things call done, and which side is which."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from sim.control import FloatArray
from sim.experts import Waypoint, stay
from sim.state import SceneState
from sim.tasks.pushing import way_is_clear
from sim.tasks.sides import at_side, wrong_side
from sim.vec_env import TabletopVecEnv


def started(task: str) -> tuple[TabletopVecEnv, SceneState]:
    """Eight worlds of a task at the start."""
    env = TabletopVecEnv(task, 8, autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=5)
    state = env.state
    env.close()
    return env, state


def put(state: SceneState, role: int, place: FloatArray) -> SceneState:
    """The state with the object in that role at `place` [N, 3]."""
    objects = state.objects.copy()
    objects[np.arange(len(state)), state.order[:, role]] = place
    return replace(state, objects=objects)


@pytest.mark.parametrize("task", ["place_in_bowl", "stack_cubes", "sort_two"])
def test_a_thing_is_placed_when_it_is_in_its_place_and_let_go_of(task):
    env, state = started(task)
    assert not env.task.success(state).any()
    off = env.task.extra(state)
    for role, vector in enumerate(off):
        state = put(state, role, state.object(role) - vector)
    held = replace(state, tool=state.object(len(off) - 1), opening=np.full(8, 0.05))
    assert not env.task.success(held).any()
    assert env.task.success(replace(held, opening=np.full(8, 0.08))).all()
    assert env.task.success(replace(held, tool=held.tool + np.array([0.0, 0.0, 0.1]))).all()
    aloft = put(held, 0, held.object() + np.array([0.0, 0.0, 0.03]))
    assert not env.task.success(replace(aloft, opening=np.full(8, 0.08))).any()


@pytest.mark.parametrize(("task", "kind"), [("push_to_zone", "zone"), ("sort_two", "tray")])
def test_left_is_the_robots_left(task, kind):
    env, state = started(task)
    y = at_side(state, kind)[:, 1]
    assert {env.task.sides[side] for side in state.side} == {"left", "right"}
    assert np.array_equal(y > 0, state.side == 0)
    assert np.array_equal(at_side(state, kind, other=True), at_side(replace(state, side=1 - state.side), kind))
    (swapped,) = wrong_side((Waypoint(lambda seen, _: at_side(seen, kind), 0.0),))
    assert np.array_equal(swapped.target(state, state.tool), at_side(state, kind, other=True))
    (kept,) = wrong_side((Waypoint(stay, 0.0),))
    assert np.array_equal(kept.target(state, state.tool), state.tool)


def test_all_of_a_pushed_thing_must_be_in_the_zone_that_is_meant():
    env, state = started("push_to_zone")
    zone = at_side(state, "zone") + np.array([0.0, 0.0, 0.025])
    assert env.task.success(put(state, 0, zone)).all()
    assert not env.task.success(put(state, 1, zone)).any()
    assert not env.task.success(put(state, 0, at_side(state, "zone", other=True))).any()
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
    assert way_is_clear(np.array([0.4, -0.1]), np.array(other), np.array([0.66, 0.13])) is clear
