"""Open the drawer."""

from collections.abc import Mapping

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.plan_variants import miss_plans, retreat_plans, stall_after
from embodied_sim.registry import register
from embodied_sim.state import SceneState
from embodied_sim.targets import keep_position, relative_to_point, relative_to_start
from embodied_sim.task import closing_fraction, distance, reach_progress, select_subtask
from embodied_sim.tasks.cabinet import CabinetTask
from embodied_sim.tasks.lift_cube import LIFT_PLAN
from embodied_sim.waypoints import GRIP_CLOSED, GRIP_OPEN, Plan, Waypoint, hold_forever

OPEN_DRAWER_M = 0.13  # minimum opening of an open drawer, m
KNOB_NECK_WIDTH_M = 0.016  # thickness of the knob's neck, m

GRASP_KNOB_PLAN: Plan = (
    Waypoint(relative_to_point("knob", z=0.1), GRIP_OPEN, tolerance=0.02),
    Waypoint(relative_to_point("knob"), GRIP_OPEN, tolerance=0.008),
    Waypoint(keep_position, GRIP_CLOSED, hold_steps=4),
)
PULL_WAYPOINT = Waypoint(relative_to_start(x=-0.17), GRIP_CLOSED, tolerance=0.015, timeout_steps=25)
PULL_PLAN: Plan = (*GRASP_KNOB_PLAN, PULL_WAYPOINT)
PUSH_SHUT_WAYPOINT = Waypoint(relative_to_start(x=0.17), GRIP_CLOSED, tolerance=0.015, timeout_steps=20)
"""Push the drawer back with the knob still grasped."""
RELEASE_PLAN: Plan = (
    Waypoint(keep_position, GRIP_OPEN, hold_steps=3),
    Waypoint(relative_to_start(z=0.12), GRIP_OPEN, tolerance=0.02),
)


def move_away_plans() -> tuple[Plan, ...]:
    """Return plans that move from the knob to positions over the table and hold there."""

    def move_to(x: float, y: float, z: float) -> Waypoint:
        return Waypoint(lambda state, _: np.tile([x, y, z], (len(state), 1)), GRIP_OPEN, tolerance=0.02)

    up = Waypoint(relative_to_start(z=0.12), GRIP_OPEN, tolerance=0.02)
    spots = ((0.4, -0.15), (0.45, 0.0), (0.5, -0.2), (0.35, 0.1))
    return tuple(
        (up, move_to(x, y, 0.2), move_to(x, y, final_height), hold_forever(GRIP_OPEN))
        for x, y in spots
        for final_height in (0.16, 0.09)
    )


@register
class OpenDrawer(CabinetTask):
    """Reach for the knob, grasp it and pull the drawer out by 13 of its 16 cm."""

    name = "open_drawer"
    subtasks = ("reach", "grasp", "pull")
    max_episode_steps = 60
    templates = (
        "open the drawer",
        "pull the drawer open",
        "slide the drawer out of the cabinet",
        "grab the green knob and pull out the drawer",
    )
    paraphrases = (
        "open the cabinet",
        "pull out the drawer",
        "draw the drawer out",
        "slide the drawer open",
        "take the knob and open the drawer",
        "pull the drawer by its green knob",
        "get the drawer open",
        "bring the drawer out of the cabinet",
        "tug the drawer towards you until it is open",
    )
    reversed_instructions = (
        "close the drawer",
        "push the drawer shut",
        "slide the drawer back into the cabinet",
        "shut the drawer",
        "push the drawer in",
        "close the cabinet",
        "slide the drawer shut",
        "get the drawer closed",
    )

    def current_subtask(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        opening, is_near = now.joints["drawer"], distance(now.tool_pos, now.points["knob"]) < 0.02
        return select_subtask(
            reach_progress(now, start, lambda state: state.points["knob"], margin=0.015),
            (is_near, closing_fraction(now.gripper_opening, KNOB_NECK_WIDTH_M)),
            (opening > 0.015, opening / OPEN_DRAWER_M),
        )

    def success(self, now: SceneState) -> np.ndarray:
        return now.joints["drawer"] > OPEN_DRAWER_M

    def expert_plan(self) -> Plan:
        return (*PULL_PLAN, hold_forever(GRIP_CLOSED))

    def post_success_plans(self) -> tuple[Plan, ...]:
        return tuple((RELEASE_PLAN[0], *plan) for plan in (*retreat_plans(GRIP_OPEN, 0.12), *move_away_plans()))

    def failure_plans(self) -> Mapping[str, tuple[Plan, ...]]:
        end = hold_forever(GRIP_OPEN)
        partial_pulls = tuple(
            (*GRASP_KNOB_PLAN, Waypoint(relative_to_start(x=-x), GRIP_CLOSED, tolerance=0.015))
            for x in (0.04, 0.07, 0.1, 0.12)
        )
        miss_offsets = ((-0.07, 0.0), (-0.05, 0.0), (-0.02, -0.07), (-0.02, 0.08), (0.0, -0.05), (0.0, 0.05))
        return {
            "stall": (*(stall_after(PULL_PLAN, n) for n in (1, 2, 3)), *map(stall_after, partial_pulls)),
            "drop": tuple((*plan, *RELEASE_PLAN, end) for plan in partial_pulls),
            "undo": tuple((*plan, PUSH_SHUT_WAYPOINT, *RELEASE_PLAN, end) for plan in (PULL_PLAN, *partial_pulls)),
            "wrong_object": (LIFT_PLAN,),
            "miss": miss_plans(PULL_PLAN, miss_offsets, above=(0.05, 0.07)),
        }
