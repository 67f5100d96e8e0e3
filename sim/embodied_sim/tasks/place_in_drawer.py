"""Put the named cube into the open drawer."""

from collections.abc import Mapping

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.plan_variants import misperceive, miss_plans, retreat_plans, stall_after
from embodied_sim.props import Cabinet, Item
from embodied_sim.props.prop import ITEM_HALF_SIZE_M
from embodied_sim.registry import register
from embodied_sim.state import SceneState
from embodied_sim.targets import keep_position, relative_to_point, relative_to_start
from embodied_sim.tasks.cabinet import CabinetTask
from embodied_sim.tasks.lift_cube import PICK_PLAN
from embodied_sim.tasks.pick_place import is_released, pick_place_subtask
from embodied_sim.waypoints import GRIP_CLOSED, GRIP_OPEN, Plan, Waypoint, hold_forever

TRAY_HALF_WIDTH_M = 0.085  # distance from the center of the tray to that of a cube at its walls, along each axis, m
MAX_CUBE_HEIGHT_M = 0.065  # maximum height of the center of a cube in the tray, m


def tray_floor_target(state: SceneState) -> FloatArray:
    """Return the center of a cube in the middle of the tray, [N, 3], m."""
    return state.points["tray"] + np.array([0.0, 0.0, ITEM_HALF_SIZE_M - 0.016])


def is_in_tray(now: SceneState) -> np.ndarray:
    """Return whether the named cube lies in the tray, bool [N]."""
    offset = np.abs(now.object_position() - now.points["tray"])
    return (offset[:, :2] < TRAY_HALF_WIDTH_M).all(axis=1) & (now.object_position()[:, 2] < MAX_CUBE_HEIGHT_M)


CARRY_PLAN: Plan = (
    *PICK_PLAN,
    Waypoint(relative_to_start(z=0.17), GRIP_CLOSED, tolerance=0.02),
    Waypoint(relative_to_point("tray", x=-0.035, z=0.15), GRIP_CLOSED, tolerance=0.02),
    Waypoint(relative_to_point("tray", x=-0.035, z=0.05), GRIP_CLOSED, tolerance=0.015, timeout_steps=12),
    Waypoint(keep_position, GRIP_OPEN, hold_steps=3),
    Waypoint(relative_to_start(z=0.12), GRIP_OPEN, tolerance=0.02),
)
"""Above the tray clear of its walls, then low in it with the palm still above its front."""
DROP_PLAN: Plan = (
    Waypoint(keep_position, GRIP_OPEN, hold_steps=4),
    Waypoint(relative_to_start(z=0.08), GRIP_OPEN, tolerance=0.02),
)
_BESIDE_TARGETS = (relative_to_start(y=-0.1, z=-0.1), relative_to_start(y=0.1, z=-0.1))
BESIDE_TRAY_WAYPOINTS = tuple(Waypoint(target, GRIP_CLOSED, tolerance=0.02) for target in _BESIDE_TARGETS)
"""Waypoints that put the cube down on the table."""
CUBE_MISS_OFFSETS_M = ((0.05, 0.0), (-0.05, 0.0), (0.0, 0.07))  # offsets at which the fingers miss the cube, m

AWAY_PLAN: Plan = (
    Waypoint(relative_to_start(x=-0.1, y=-0.16), GRIP_CLOSED, tolerance=0.02),
    Waypoint(relative_to_start(z=-0.13), GRIP_CLOSED, timeout_steps=12),
)
"""Move from above the tray back to the table."""


@register
class PlaceInDrawer(CabinetTask):
    """Reach for the named cube, grasp it, put it down in the open drawer and release it."""

    name = "place_in_drawer"
    props = (Cabinet(drawer_start_range=(0.12, 0.155)), Item("red", "red"), Item("blue", "blue"))
    subtasks = ("reach", "grasp", "place")
    max_episode_steps = 80
    templates = (
        "put the {color} cube into the drawer",
        "place the {color} block in the drawer",
        "drop the {color} cube into the open drawer",
        "pick up the {color} cube and leave it in the drawer",
    )
    paraphrases = (
        "move the {color} cube into the drawer",
        "the {color} cube goes into the drawer",
        "lay the {color} block in the drawer",
        "carry the {color} cube over to the drawer and let it go",
        "transfer the {color} block to the drawer",
        "grasp the {color} cube and put it in the drawer",
        "set the {color} cube down inside the drawer",
        "get the {color} block into the drawer",
    )
    reversed_instructions = (
        "take the {color} cube out of the drawer",
        "get the {color} block from the drawer",
        "remove the {color} cube from the drawer",
        "lift the {color} cube out of the drawer",
        "pick the {color} block out of the drawer",
        "empty the {color} cube out of the drawer",
    )
    implied_goals = ("open the drawer",)

    def current_subtask(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        return pick_place_subtask(now, start, tray_floor_target, TRAY_HALF_WIDTH_M)

    def success(self, now: SceneState) -> np.ndarray:
        return is_in_tray(now) & is_released(now, now.object_position())

    def expert_plan(self) -> Plan:
        return (*CARRY_PLAN, hold_forever(GRIP_OPEN))

    def post_success_plans(self) -> tuple[Plan, ...]:
        return retreat_plans(GRIP_OPEN)

    def failure_plans(self) -> Mapping[str, tuple[Plan, ...]]:
        carry_plan, end = CARRY_PLAN[:4], hold_forever(GRIP_OPEN)
        return {
            "stall": tuple(stall_after(CARRY_PLAN, n) for n in (1, 2, 3, 4, 5, 6)),
            "drop": (
                (*carry_plan, *DROP_PLAN, end),
                *((*carry_plan, waypoint, *DROP_PLAN, end) for waypoint in BESIDE_TRAY_WAYPOINTS),
                (*CARRY_PLAN[:5], Waypoint(relative_to_start(x=-0.2), GRIP_CLOSED, tolerance=0.02), *DROP_PLAN, end),
            ),
            "undo": tuple((*CARRY_PLAN[:n], CARRY_PLAN[4], *AWAY_PLAN, *DROP_PLAN, end) for n in (5, 6)),
            "wrong_object": (misperceive((*CARRY_PLAN, end)),),
            "miss": tuple((*plan, end) for plan in miss_plans(CARRY_PLAN, CUBE_MISS_OFFSETS_M, num_shifted=4)),
        }
