"""Put the named cube into the drawer and close it: open, pick, place, close."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.plan_variants import misperceive, override_grip, shift_targets, stall_after
from embodied_sim.props.prop import ITEM_HALF_SIZE_M
from embodied_sim.registry import register
from embodied_sim.state import SceneState
from embodied_sim.targets import relative_to_point, relative_to_start
from embodied_sim.task import ITEM_WIDTH_M, distance, is_grasped, reach_progress, select_subtask
from embodied_sim.tasks.cabinet import CabinetTask
from embodied_sim.tasks.lift_cube import LIFT_PLAN
from embodied_sim.tasks.open_drawer import OPEN_DRAWER_M, PULL_PLAN, RELEASE_PLAN
from embodied_sim.tasks.place_in_drawer import (
    BESIDE_TRAY_WAYPOINTS,
    CARRY_PLAN,
    CUBE_MISS_OFFSETS_M,
    DROP_PLAN,
    is_in_tray,
)
from embodied_sim.waypoints import GRIP_CLOSED, GRIP_OPEN, Plan, Waypoint, hold_forever

CLOSED_DRAWER_M = 0.02  # maximum opening of a closed drawer, m
MAX_TRAVEL_M = 0.45  # length that normalizes reaching and carrying, m: from the drawer to the farthest cube
before_knob_high = relative_to_point("knob", x=-0.08, z=0.1)  # in front of the knob and above it
before_knob = relative_to_point("knob", x=-0.075)  # in front of the knob, at its height


def closing_progress(now: SceneState, closed_opening: float) -> FloatArray:
    """Return the progress [N] in [0, 1] of the hand to the knob and of the drawer to `closed_opening`, m."""
    reach_progress = 1.0 - distance(now.tool_pos, before_knob(now, now.tool_pos)) / MAX_TRAVEL_M
    drawer_progress = 1.0 - (now.joints["drawer"] - closed_opening) / (OPEN_DRAWER_M - closed_opening)
    return 0.4 * np.clip(reach_progress, 0.0, 1.0) + 0.6 * np.clip(drawer_progress, 0.0, 1.0)


def closing_plan(push_distance: float = 0.25) -> Plan:
    """Push the drawer by `push_distance` m, starting 7.5 cm in front of its knob; less than 0.15 m leave it ajar."""
    return (
        Waypoint(before_knob_high, GRIP_CLOSED, tolerance=0.03),
        Waypoint(before_knob, GRIP_CLOSED, tolerance=0.015),
        Waypoint(relative_to_start(x=push_distance), GRIP_CLOSED, tolerance=0.01, timeout_steps=25),
    )


OPENING_PLAN: Plan = (*PULL_PLAN, *RELEASE_PLAN)
CLOSING_PLAN = closing_plan()
FULL_PLAN: Plan = (*OPENING_PLAN, *CARRY_PLAN, *CLOSING_PLAN, hold_forever(GRIP_CLOSED))


@register
class CubeInDrawer(CabinetTask):
    """Open the drawer, pick the named cube, place it inside and close the drawer."""

    name = "cube_in_drawer"
    subtasks: ClassVar[tuple[str, ...]] = ("open", "pick", "place", "close")
    max_episode_steps = 180
    templates: ClassVar[tuple[str, ...]] = (
        "put the {color} cube into the drawer and close it",
        "store the {color} cube in the drawer, then shut the drawer",
        "open the drawer, place the {color} block inside and close the drawer",
        "tidy the {color} cube away in the drawer",
    )

    def current_subtask(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        cube, is_open = now.object_position(), now.joints["drawer"] > 0.1
        is_held = is_grasped(now, cube, ITEM_WIDTH_M) & (cube[:, 2] > ITEM_HALF_SIZE_M + 0.02)
        knob_progress = reach_progress(now, start, lambda state: state.points["knob"], margin=0.0)
        above_tray = now.points["tray"] + np.array([0.0, 0.0, 0.06])
        return select_subtask(
            0.4 * knob_progress + 0.6 * now.joints["drawer"] / 0.1,
            (is_open, 1.0 - (distance(now.tool_pos, cube) - 0.01) / MAX_TRAVEL_M),
            (is_open & is_held, 1.0 - (distance(cube, above_tray) - 0.03) / MAX_TRAVEL_M),
            (is_in_tray(now), closing_progress(now, CLOSED_DRAWER_M)),
        )

    def success(self, now: SceneState) -> np.ndarray:
        return is_in_tray(now) & (now.joints["drawer"] < CLOSED_DRAWER_M)

    def expert_plan(self) -> Plan:
        return FULL_PLAN

    def failure_plans(self) -> Mapping[str, tuple[Plan, ...]]:
        end, placed_plan = hold_forever(GRIP_OPEN), (*OPENING_PLAN, *CARRY_PLAN)
        push_shut = Waypoint(relative_to_start(x=0.19), GRIP_CLOSED, tolerance=0.015, timeout_steps=20)
        drops = ((*OPENING_PLAN, *CARRY_PLAN[:4], waypoint, *DROP_PLAN) for waypoint in BESIDE_TRAY_WAYPOINTS)
        misses = (
            *((*OPENING_PLAN, *shift_targets(CARRY_PLAN[:4], x, y), *CARRY_PLAN[4:]) for x, y in CUBE_MISS_OFFSETS_M),
            *((*OPENING_PLAN, *override_grip(CARRY_PLAN, grip)) for grip in (GRIP_OPEN, GRIP_CLOSED)),
            *((*shift_targets(PULL_PLAN, -0.06, y), *RELEASE_PLAN, *CARRY_PLAN) for y in (-0.05, 0.0, 0.05)),
        )
        return {
            "stall": (
                *(stall_after(FULL_PLAN, n) for n in (3, 6, 8, 10, 13, 15)),
                *(stall_after((*placed_plan, *closing_plan(x))) for x in (0.08, 0.1, 0.12, 0.135)),
            ),
            "drop": (
                (*OPENING_PLAN, *CARRY_PLAN[:4], *DROP_PLAN, end),
                *((*plan, *CLOSING_PLAN, end) for plan in drops),
            ),
            "undo": (
                (*PULL_PLAN, push_shut, *RELEASE_PLAN, end),
                (*OPENING_PLAN, *CLOSING_PLAN, hold_forever(GRIP_CLOSED)),
            ),
            "wrong_object": (misperceive(FULL_PLAN), LIFT_PLAN),
            "miss": tuple((*plan, *CLOSING_PLAN, end) for plan in misses),
        }
