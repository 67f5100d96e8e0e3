"""Open the drawer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.layout import Layout
from embodied_sim.registry import register
from embodied_sim.state import SceneState
from embodied_sim.task import closing_fraction, distance, proximity
from embodied_sim.tasks.cabinet import CabinetTask
from embodied_sim.tasks.lift_cube import LIFT_PLAN
from embodied_sim.waypoints import (
    GRIP_CLOSED,
    GRIP_OPEN,
    Plan,
    Waypoint,
    hold_forever,
    keep_position,
    override_grip,
    relative_to_point,
    relative_to_start,
    retreat_plans,
    shift_targets,
    stall_after,
)

OPEN_DRAWER_M = 0.13
"""Minimum opening of an open drawer, m."""
KNOB_NECK_WIDTH_M = 0.016
"""Thickness of the knob's neck, m."""


above_knob = relative_to_point("knob", z=0.1)
knob_grasp_point = relative_to_point("knob")
"""Target at which the fingers grasp the knob."""
GRASP_KNOB_PLAN: Plan = (
    Waypoint(above_knob, GRIP_OPEN, tolerance=0.02),
    Waypoint(knob_grasp_point, GRIP_OPEN, tolerance=0.008),
    Waypoint(keep_position, GRIP_CLOSED, hold_steps=4),
)
PULL_PLAN: Plan = (
    *GRASP_KNOB_PLAN,
    Waypoint(relative_to_start(x=-0.17), GRIP_CLOSED, tolerance=0.015, timeout_steps=25),
)
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
        is_pulled = now.joints["drawer"] > 0.015
        is_near = distance(now.tool_pos, now.points["knob"]) < 0.02
        subtask = np.where(is_pulled, 2, np.where(is_near, 1, 0))
        reach_progress = proximity(
            distance(now.tool_pos, now.points["knob"]) - 0.015, distance(start.tool_pos, start.points["knob"]) - 0.015
        )
        fraction = np.select(
            [is_pulled, is_near],
            [now.joints["drawer"] / OPEN_DRAWER_M, closing_fraction(now.gripper_opening, KNOB_NECK_WIDTH_M)],
            reach_progress,
        )
        return subtask, fraction

    def success(self, now: SceneState) -> np.ndarray:
        return now.joints["drawer"] > OPEN_DRAWER_M

    def named_bodies(self, layout: Layout) -> tuple[str, ...]:
        return ("drawer",)

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
        push_shut = Waypoint(relative_to_start(x=0.17), GRIP_CLOSED, tolerance=0.015, timeout_steps=20)
        return {
            "stall": (
                *(stall_after(PULL_PLAN, n) for n in (1, 2, 3)),
                *(stall_after(plan, 4) for plan in partial_pulls),
            ),
            "drop": tuple((*plan, *RELEASE_PLAN, end) for plan in partial_pulls),
            "undo": (
                (*PULL_PLAN, push_shut, *RELEASE_PLAN, end),
                *((*plan, push_shut, *RELEASE_PLAN, end) for plan in partial_pulls),
            ),
            "wrong_object": (LIFT_PLAN,),
            "miss": (
                *(
                    shift_targets(PULL_PLAN, x, y)
                    for x, y in ((-0.07, 0.0), (-0.05, 0.0), (-0.02, -0.07), (-0.02, 0.08))
                ),
                *(shift_targets(PULL_PLAN, y=y) for y in (-0.05, 0.05)),
                *(shift_targets(PULL_PLAN, z=z) for z in (0.05, 0.07)),
                *(override_grip(PULL_PLAN, grip) for grip in (GRIP_OPEN, GRIP_CLOSED)),
                override_grip(PULL_PLAN, GRIP_OPEN, first_waypoint=3),
            ),
        }
