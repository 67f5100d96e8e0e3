"""Lift the named cube off the table."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.props.prop import ITEM_HALF_SIZE_M
from embodied_sim.registry import register
from embodied_sim.state import SceneState
from embodied_sim.task import ITEM_WIDTH_M, closing_fraction, distance, is_grasped, proximity
from embodied_sim.tasks.cabinet import CabinetTask
from embodied_sim.waypoints import (
    GRIP_CLOSED,
    GRIP_OPEN,
    Plan,
    Waypoint,
    hold_forever,
    keep_position,
    misperceive,
    override_grip,
    relative_to_start,
    shift_targets,
    stall_after,
)

LIFT_HEIGHT_M = 0.12
"""Minimum height of a lifted cube above the table, m."""
_GRASP_OFFSET_M = np.array([0.0, 0.0, -0.002])


def above_cube(state: SceneState, _: FloatArray) -> FloatArray:
    """Target 10 cm above the named cube."""
    return state.object_position() + np.array([0.0, 0.0, 0.1])


def grasp_point(state: SceneState, _: FloatArray) -> FloatArray:
    """Target at which the fingers grasp the named cube."""
    return state.object_position() + _GRASP_OFFSET_M


PICK_PLAN: Plan = (
    Waypoint(above_cube, GRIP_OPEN, tolerance=0.02),
    Waypoint(grasp_point, GRIP_OPEN, tolerance=0.01),
    Waypoint(keep_position, GRIP_CLOSED, hold_steps=4),
)


def raise_by(height: float) -> Plan:
    """Pick the cube and lift it by `height` m."""
    return (*PICK_PLAN, Waypoint(relative_to_start(z=height), GRIP_CLOSED, tolerance=0.015))


LIFT_PLAN: Plan = (*raise_by(0.17), hold_forever(GRIP_CLOSED))


@register
class LiftCube(CabinetTask):
    """Reach for the named cube, grasp it and lift it by 12 cm; the other cube is a distractor."""

    name = "lift_cube"
    subtasks = ("reach", "grasp", "lift")
    max_episode_steps = 60
    templates = (
        "lift the {color} cube",
        "pick up the {color} cube",
        "raise the {color} block off the table",
        "grab the {color} cube and lift it up",
    )
    paraphrases = (
        "raise the {color} cube",
        "lift up the {color} block",
        "take the {color} cube off the table",
        "grasp the {color} cube and raise it",
        "hoist the {color} block",
        "bring the {color} cube up into the air",
        "take hold of the {color} cube and lift it",
        "hold the {color} block above the table",
        "get the {color} cube up",
    )
    reversed_instructions = (
        "put the {color} cube down",
        "lower the {color} cube to the table",
        "set the {color} block back on the table",
        "let the {color} cube down",
        "bring the {color} block down to the table",
        "place the {color} cube on the table",
        "return the {color} cube to the table",
        "lay the {color} block down",
    )

    def current_subtask(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        cube = now.object_position()
        height = cube[:, 2] - ITEM_HALF_SIZE_M
        is_held = is_grasped(now, cube, ITEM_WIDTH_M)
        is_near = distance(now.tool_pos, cube) < 0.025
        subtask = np.where(is_held, 2, np.where(is_near, 1, 0))
        reach_progress = proximity(
            distance(now.tool_pos, cube) - 0.02, distance(start.tool_pos, start.object_position()) - 0.02
        )
        fraction = np.select(
            [is_held, is_near],
            [height / LIFT_HEIGHT_M, closing_fraction(now.gripper_opening, ITEM_WIDTH_M)],
            reach_progress,
        )
        return subtask, fraction

    def success(self, now: SceneState) -> np.ndarray:
        return (now.object_position()[:, 2] - ITEM_HALF_SIZE_M > LIFT_HEIGHT_M) & is_grasped(
            now, now.object_position(), ITEM_WIDTH_M
        )

    def expert_plan(self) -> Plan:
        return LIFT_PLAN

    def failure_plans(self) -> Mapping[str, tuple[Plan, ...]]:
        lower_waypoints = (
            Waypoint(relative_to_start(z=-0.17), GRIP_CLOSED, tolerance=0.02, timeout_steps=12),
            Waypoint(keep_position, GRIP_OPEN, hold_steps=3),
        )
        leave_waypoints = (Waypoint(relative_to_start(x=-0.05, z=0.12), GRIP_OPEN), hold_forever(GRIP_OPEN))
        return {
            "stall": (
                *(stall_after(LIFT_PLAN, n) for n in (1, 2, 3)),
                *(stall_after(raise_by(z), 4) for z in (0.03, 0.06, 0.085, 0.1)),
            ),
            "drop": tuple(
                (*raise_by(z), Waypoint(keep_position, GRIP_OPEN, hold_steps=4), *leave_waypoints)
                for z in (0.05, 0.08, 0.1, 0.17)
            ),
            "undo": (
                (
                    *LIFT_PLAN[:-1],
                    Waypoint(keep_position, GRIP_CLOSED, hold_steps=6),
                    *lower_waypoints,
                    *leave_waypoints,
                ),
            ),
            "wrong_object": (misperceive(LIFT_PLAN),),
            "miss": (
                *(shift_targets(LIFT_PLAN, x, y) for x, y in ((0.05, 0.0), (-0.05, 0.0), (0.0, 0.07), (0.0, -0.07))),
                *(shift_targets(LIFT_PLAN, z=z) for z in (0.05, 0.08)),
                *(override_grip(LIFT_PLAN, grip) for grip in (GRIP_OPEN, GRIP_CLOSED)),
                override_grip(LIFT_PLAN, GRIP_OPEN, first_waypoint=3),
            ),
        }
