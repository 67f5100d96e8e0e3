"""Lift the named cube off the table."""

from collections.abc import Mapping

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.layout import Layout
from embodied_sim.plan_variants import misperceive, miss_plans, stall_after
from embodied_sim.props.prop import ITEM_HALF_SIZE_M
from embodied_sim.registry import register
from embodied_sim.state import SceneState
from embodied_sim.targets import keep_position, relative_to_object, relative_to_start
from embodied_sim.task import ITEM_WIDTH_M, closing_fraction, distance, is_grasped, reach_progress, select_subtask
from embodied_sim.tasks.cabinet import CabinetTask
from embodied_sim.waypoints import GRIP_CLOSED, GRIP_OPEN, Plan, Waypoint, hold_forever

LIFT_HEIGHT_M = 0.12  # minimum height of a lifted cube above the table, m

above_cube = relative_to_object(z=0.1)
grasp_point = relative_to_object(z=-0.002)  # target at which the fingers grasp the named cube
PICK_PLAN: Plan = (
    Waypoint(above_cube, GRIP_OPEN, tolerance=0.02),
    Waypoint(grasp_point, GRIP_OPEN, tolerance=0.01),
    Waypoint(keep_position, GRIP_CLOSED, hold_steps=4),
)


def raise_by(height: float) -> Plan:
    """Pick the cube and lift it by `height` m."""
    return (*PICK_PLAN, Waypoint(relative_to_start(z=height), GRIP_CLOSED, tolerance=0.015))


LIFT_PLAN: Plan = (*raise_by(0.17), hold_forever(GRIP_CLOSED))
PUT_DOWN_PLAN: Plan = (
    *LIFT_PLAN[:-1],
    Waypoint(keep_position, GRIP_CLOSED, hold_steps=6),
    Waypoint(relative_to_start(z=-0.17), GRIP_CLOSED, tolerance=0.02, timeout_steps=12),
    Waypoint(keep_position, GRIP_OPEN, hold_steps=3),
)
"""Lift the cube, then put it down again."""


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

    def named_bodies(self, layout: Layout) -> tuple[str, ...]:
        return super(CabinetTask, self).named_bodies(layout)  # the cube only

    def current_subtask(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        cube = now.object_position()
        return select_subtask(
            reach_progress(now, start, SceneState.object_position),
            (distance(now.tool_pos, cube) < 0.025, closing_fraction(now.gripper_opening, ITEM_WIDTH_M)),
            (is_grasped(now, cube, ITEM_WIDTH_M), (cube[:, 2] - ITEM_HALF_SIZE_M) / LIFT_HEIGHT_M),
        )

    def success(self, now: SceneState) -> np.ndarray:
        cube = now.object_position()
        return (cube[:, 2] - ITEM_HALF_SIZE_M > LIFT_HEIGHT_M) & is_grasped(now, cube, ITEM_WIDTH_M)

    def expert_plan(self) -> Plan:
        return LIFT_PLAN

    def failure_plans(self) -> Mapping[str, tuple[Plan, ...]]:
        release = Waypoint(keep_position, GRIP_OPEN, hold_steps=4)
        leave = (Waypoint(relative_to_start(x=-0.05, z=0.12), GRIP_OPEN), hold_forever(GRIP_OPEN))
        return {
            "stall": (
                *(stall_after(LIFT_PLAN, n) for n in (1, 2, 3)),
                *(stall_after(raise_by(z), 4) for z in (0.03, 0.06, 0.085, 0.1)),
            ),
            "drop": tuple((*raise_by(z), release, *leave) for z in (0.05, 0.08, 0.1, 0.17)),
            "undo": ((*PUT_DOWN_PLAN, *leave),),
            "wrong_object": (misperceive(LIFT_PLAN),),
            "miss": miss_plans(LIFT_PLAN, ((0.05, 0.0), (-0.05, 0.0), (0.0, 0.07), (0.0, -0.07))),
        }
