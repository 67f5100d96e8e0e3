"""Close the open drawer."""

from collections.abc import Mapping

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.plan_variants import shift_targets, stall_after
from embodied_sim.props import Cabinet, Item
from embodied_sim.registry import register
from embodied_sim.state import SceneState
from embodied_sim.targets import Target, relative_to_start
from embodied_sim.task import reach_progress, select_subtask
from embodied_sim.tasks.cabinet import CabinetTask
from embodied_sim.tasks.cube_in_drawer import CLOSING_PLAN, before_knob
from embodied_sim.tasks.lift_cube import LIFT_PLAN, above_cube, grasp_point
from embodied_sim.tasks.open_drawer import PULL_PLAN
from embodied_sim.waypoints import GRIP_CLOSED, GRIP_OPEN, Plan, Waypoint, hold_forever

CLOSED_DRAWER_M = 0.01  # maximum opening of a closed drawer, m
KNOB_FRONT_OFFSET_M = 0.032  # distance from the point `knob` to the front of the knob, m
FINGER_HALF_THICKNESS_M = 0.009  # half thickness of the closed fingers along the push, m
PUSH_BELOW_KNOB_M = 0.008
"""Distance below the knob's center at which the hand pushes, so that a noisy hand does not slide over it, m."""

APPROACH_PLAN = CLOSING_PLAN[:-1]
END_WAYPOINT = hold_forever(GRIP_CLOSED)


def push_to(opening: float) -> Target:
    """Return a target of the closed hand at the knob of a drawer with that opening, m."""

    offset = np.array([KNOB_FRONT_OFFSET_M + FINGER_HALF_THICKNESS_M, 0.0, PUSH_BELOW_KNOB_M])

    def goal(state: SceneState, _: FloatArray) -> FloatArray:
        contact = state.points["knob"] - offset
        contact[:, 0] += state.joints["drawer"] - opening
        return contact

    return goal


PUSH_PLAN: Plan = (*APPROACH_PLAN, Waypoint(push_to(-0.03), GRIP_CLOSED, timeout_steps=18))


def stop_short(opening: float) -> Plan:
    """Push the drawer to about that opening, m, slowly at the end so that it does not slide further."""
    pushes = (push_to(opening + remaining) for remaining in (0.05, 0.035, 0.02, 0.01, 0.0))
    return (
        *APPROACH_PLAN,
        *(Waypoint(push, GRIP_CLOSED, tolerance=0.006, hold_steps=1, timeout_steps=12) for push in pushes),
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
        return select_subtask(
            reach_progress(now, start, lambda state: before_knob(state, state.tool_pos)),
            (opening < start_opening - 0.008, (start_opening - opening) / (start_opening - CLOSED_DRAWER_M)),
        )

    def success(self, now: SceneState) -> np.ndarray:
        return now.joints["drawer"] < CLOSED_DRAWER_M

    def expert_plan(self) -> Plan:
        return (*PUSH_PLAN, END_WAYPOINT)

    def failure_plans(self) -> Mapping[str, tuple[Plan, ...]]:
        partial_pushes = tuple(stop_short(opening) for opening in (0.02, 0.03, 0.05, 0.08))
        leave = (
            Waypoint(relative_to_start(x=-0.08), GRIP_CLOSED, tolerance=0.02, timeout_steps=15),
            Waypoint(relative_to_start(z=0.12), GRIP_CLOSED),
        )
        fast_pushes = (
            Waypoint(push_to(opening), GRIP_CLOSED, tolerance=0.02, timeout_steps=11) for opening in (-0.03, 0.05, 0.08)
        )
        reopen = (Waypoint(relative_to_start(z=0.1), GRIP_OPEN, tolerance=0.03), *PULL_PLAN, hold_forever(GRIP_OPEN))
        push_beside_cube = shift_targets(
            (Waypoint(above_cube, GRIP_CLOSED, tolerance=0.02), Waypoint(grasp_point, GRIP_CLOSED)), x=-0.07
        )
        sideways = Waypoint(relative_to_start(y=-0.16), GRIP_CLOSED)
        blind_pushes = {x: Waypoint(relative_to_start(x=x), GRIP_CLOSED, timeout_steps=25) for x in (0.0, 0.02, 0.2)}
        return {
            "stall": (*(stall_after(PUSH_PLAN, n) for n in (1, 2)), *map(stall_after, partial_pushes)),
            "drop": tuple((*plan, *leave, END_WAYPOINT) for plan in partial_pushes),
            "undo": tuple((*APPROACH_PLAN, push, *reopen) for push in fast_pushes),
            "wrong_object": (
                LIFT_PLAN,
                (*push_beside_cube, Waypoint(relative_to_start(x=0.15), GRIP_CLOSED), END_WAYPOINT),
            ),
            "miss": (
                *(shift_targets(PUSH_PLAN, z=z) for z in (0.055, 0.075)),
                *(shift_targets(PUSH_PLAN, y=y) for y in (-0.17, -0.14)),
                *(shift_targets((*APPROACH_PLAN, blind_pushes[x], END_WAYPOINT), x=-0.02) for x in (0.0, 0.02)),
                (*APPROACH_PLAN, sideways, blind_pushes[0.2], END_WAYPOINT),
            ),
        }
