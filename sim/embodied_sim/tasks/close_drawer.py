"""Close the open drawer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.layout import Layout
from embodied_sim.props import Cabinet, Item
from embodied_sim.registry import register
from embodied_sim.state import SceneState
from embodied_sim.task import distance, proximity
from embodied_sim.tasks.cabinet import CabinetTask
from embodied_sim.tasks.cube_in_drawer import before_knob, before_knob_high
from embodied_sim.tasks.lift_cube import LIFT_PLAN, above_cube, grasp_point
from embodied_sim.tasks.open_drawer import PULL_PLAN
from embodied_sim.waypoints import (
    GRIP_CLOSED,
    GRIP_OPEN,
    Plan,
    Target,
    Waypoint,
    hold_forever,
    relative_to_start,
    shift_targets,
    stall_after,
)

CLOSED_DRAWER_M = 0.01
"""Maximum opening of a closed drawer, m."""
KNOB_FRONT_OFFSET_M = 0.032
"""Distance from the point `knob` to the front of the knob, m."""
FINGER_HALF_THICKNESS_M = 0.009
"""Half thickness of the closed fingers along the push, m."""
PUSH_BELOW_KNOB_M = 0.008
"""Distance below the knob's center at which the hand pushes, so that a noisy hand does not slide over it, m."""

APPROACH_PLAN: Plan = (
    Waypoint(before_knob_high, GRIP_CLOSED, tolerance=0.03),
    Waypoint(before_knob, GRIP_CLOSED, tolerance=0.015),
)
END_WAYPOINT = hold_forever(GRIP_CLOSED)


def push_to(opening: float) -> Target:
    """Return a target of the closed hand at the knob of a drawer with that opening, m."""

    def goal(state: SceneState, _: FloatArray) -> FloatArray:
        contact = state.points["knob"] - np.array(
            [KNOB_FRONT_OFFSET_M + FINGER_HALF_THICKNESS_M, 0.0, PUSH_BELOW_KNOB_M]
        )
        contact[:, 0] += state.joints["drawer"] - opening
        return contact

    return goal


PUSH_PLAN: Plan = (*APPROACH_PLAN, Waypoint(push_to(-0.03), GRIP_CLOSED, timeout_steps=18))


def stop_short(opening: float) -> Plan:
    """Push the drawer to about that opening, m, slowly at the end so that it does not slide further."""
    openings = (opening + remaining for remaining in (0.05, 0.035, 0.02, 0.01, 0.0))
    return (
        *APPROACH_PLAN,
        *(
            Waypoint(push_to(remaining), GRIP_CLOSED, tolerance=0.006, hold_steps=1, timeout_steps=12)
            for remaining in openings
        ),
    )


@register
class CloseDrawer(CabinetTask):
    """Move the closed hand in front of the knob and push the drawer in, to an opening of less than 1 cm."""

    name = "close_drawer"
    props = (Cabinet(drawer_start_range=(0.1, 0.15)), Item("red", "red"), Item("blue", "blue"))
    subtasks = ("reach", "push")
    max_episode_steps = 52
    templates = (
        "close the drawer",
        "push the drawer shut",
        "slide the drawer back into the cabinet",
        "push the green knob until the drawer is closed",
    )

    def current_subtask(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        opening, start_opening = now.joints["drawer"], start.joints["drawer"]
        target, start_target = before_knob(now, now.tool_pos), before_knob(start, start.tool_pos)
        reach_progress = proximity(distance(now.tool_pos, target) - 0.02, distance(start.tool_pos, start_target) - 0.02)
        is_pushed = opening < start_opening - 0.008
        return np.where(is_pushed, 1, 0), np.where(
            is_pushed, (start_opening - opening) / (start_opening - CLOSED_DRAWER_M), reach_progress
        )

    def success(self, now: SceneState) -> np.ndarray:
        return now.joints["drawer"] < CLOSED_DRAWER_M

    def named_bodies(self, layout: Layout) -> tuple[str, ...]:
        return ("drawer",)

    def expert_plan(self) -> Plan:
        return (*PUSH_PLAN, END_WAYPOINT)

    def failure_plans(self) -> Mapping[str, tuple[Plan, ...]]:
        partial_pushes = tuple(stop_short(opening) for opening in (0.02, 0.03, 0.05, 0.08))
        leave = (
            Waypoint(relative_to_start(x=-0.08), GRIP_CLOSED, tolerance=0.02, timeout_steps=15),
            Waypoint(relative_to_start(z=0.12), GRIP_CLOSED),
        )
        fast_pushes = tuple(
            (*APPROACH_PLAN, Waypoint(push_to(opening), GRIP_CLOSED, tolerance=0.02, timeout_steps=11))
            for opening in (-0.03, 0.05, 0.08)
        )
        reopen = (Waypoint(relative_to_start(z=0.1), GRIP_OPEN, tolerance=0.03), *PULL_PLAN, hold_forever(GRIP_OPEN))
        push_beside_cube = shift_targets(
            (Waypoint(above_cube, GRIP_CLOSED, tolerance=0.02), Waypoint(grasp_point, GRIP_CLOSED)), x=-0.07
        )
        return {
            "stall": (
                *(stall_after(PUSH_PLAN, n) for n in (1, 2)),
                *(stall_after(plan, len(plan)) for plan in partial_pushes),
            ),
            "drop": tuple((*plan, *leave, END_WAYPOINT) for plan in partial_pushes),
            "undo": tuple((*plan, *reopen) for plan in fast_pushes),
            "wrong_object": (
                LIFT_PLAN,
                (*push_beside_cube, Waypoint(relative_to_start(x=0.15), GRIP_CLOSED), END_WAYPOINT),
            ),
            "miss": (
                *(shift_targets(PUSH_PLAN, z=z) for z in (0.055, 0.075)),
                *(shift_targets(PUSH_PLAN, y=y) for y in (-0.17, -0.14)),
                *(
                    shift_targets(
                        (*APPROACH_PLAN, Waypoint(relative_to_start(x=x), GRIP_CLOSED, timeout_steps=25), END_WAYPOINT),
                        x=-0.02,
                    )
                    for x in (0.0, 0.02)
                ),
                (
                    *APPROACH_PLAN,
                    Waypoint(relative_to_start(y=-0.16), GRIP_CLOSED),
                    Waypoint(relative_to_start(x=0.2), GRIP_CLOSED, timeout_steps=25),
                    END_WAYPOINT,
                ),
            ),
        }
