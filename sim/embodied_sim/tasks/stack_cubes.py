"""Put the named cube on top of the other one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.props import Item
from embodied_sim.registry import register
from embodied_sim.state import SceneState
from embodied_sim.task import ITEM_WIDTH_M, Task
from embodied_sim.tasks.pick_place import (
    PICK_UP_PLAN,
    drop_plans,
    is_at_rest,
    is_released,
    lower_to,
    miss_plans,
    pick_place_subtask,
    place_plan,
    then_stall,
    undo_plan,
)
from embodied_sim.waypoints import (
    GRIP_CLOSED,
    GRIP_OPEN,
    Plan,
    Waypoint,
    misperceive,
    relative_to_start,
    retreat_plans,
    stall_after,
)

MAX_OFFSET_M = 0.022
"""Maximum horizontal offset of the two cubes' centers, m; at 2.5 cm the upper one tips over."""
ADJACENT_DISTANCE_M = 0.056
"""Distance between the centers of two adjacent cubes, m."""


def stack_target(state: SceneState) -> FloatArray:
    """Return the center of the named cube on top of the other, [N, 3], m."""
    return state.object_position(1) + np.array([0.0, 0.0, ITEM_WIDTH_M])


@register
class StackCubes(Task):
    """Reach for the named cube, grasp it, put it down on the other and release it."""

    name = "stack_cubes"
    props = (Item("cube"), Item("other"))
    subtasks = ("reach", "grasp", "place")
    max_episode_steps = 75
    templates = (
        "put the {color} {thing} on top of the {other_color} {other_thing}",
        "stack the {color} {thing} on the {other_color} one",
        "place the {color} block onto the {other_color} block",
        "build a tower: the {color} {thing} on the {other_color} {other_thing}",
    )
    paraphrases = (
        "set the {color} {thing} on the {other_color} {other_thing}",
        "the {color} {thing} goes on top of the {other_color} one",
        "pile the {color} {thing} onto the {other_color} {other_thing}",
        "lay the {color} block on the {other_color} block",
        "pick up the {color} {thing} and put it on the {other_color} {other_thing}",
        "make a stack with the {color} {thing} on the {other_color} {other_thing}",
        "rest the {color} block on top of the {other_color} block",
        "move the {color} {thing} onto the {other_color} one",
    )
    reversed_instructions = (
        "take the {color} {thing} off the {other_color} {other_thing}",
        "unstack the {color} {thing} from the {other_color} one",
        "remove the {color} block from the {other_color} block",
        "lift the {color} {thing} off the {other_color} {other_thing}",
        "take down the {color} {thing} from the {other_color} {other_thing}",
        "put the {color} block beside the {other_color} block",
    )

    def extra_observation(self, state: SceneState) -> tuple[FloatArray, ...]:
        """Return the position of the named cube relative to its target."""
        return (state.object_position() - stack_target(state),)

    def current_subtask(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        return pick_place_subtask(now, start, 0, stack_target(now), stack_target(start), MAX_OFFSET_M)

    def success(self, now: SceneState) -> np.ndarray:
        return is_at_rest(now.object_position(), stack_target(now), MAX_OFFSET_M) & is_released(
            now, now.object_position()
        )

    def expert_plan(self) -> Plan:
        return place_plan(stack_target)

    def post_success_plans(self) -> tuple[Plan, ...]:
        return retreat_plans(GRIP_OPEN)

    def failure_plans(self) -> Mapping[str, tuple[Plan, ...]]:
        full_plan = place_plan(stack_target)
        adjacent_offsets = ((-ADJACENT_DISTANCE_M, 0.0), (ADJACENT_DISTANCE_M, 0.0))
        tipping_offsets = ((0.034, 0.0), (-0.034, 0.0), (0.0, 0.034))
        sweep_waypoints = tuple(
            Waypoint(relative_to_start(y=y, z=z), GRIP_CLOSED, tolerance=0.02)
            for y, z in ((0.1, 0.0), (0.0, -0.1), (-0.2, 0.0))
        )
        return {
            "stall": (
                *(stall_after(full_plan, n) for n in (1, 2, 3, 4, 5, 6)),
                then_stall((*full_plan[:5], lower_to(stack_target, above=0.03))),
            ),
            "drop": drop_plans(stack_target),
            "undo": (
                undo_plan(stack_target),
                (*full_plan, *sweep_waypoints),
                then_stall((*full_plan, *PICK_UP_PLAN)),
            ),
            "wrong_object": (misperceive(full_plan),),
            "miss": (
                *miss_plans(stack_target),
                *(place_plan(stack_target, x, y) for x, y in (*adjacent_offsets, *tipping_offsets)),
            ),
        }
