"""Put the named peg into the hole of the board."""

from collections.abc import Mapping

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.plan_variants import misperceive, override_grip, retreat_plans, shift_targets, stall_after
from embodied_sim.props import Peg, Pegboard
from embodied_sim.props.peg import HOLE_CLEARANCE_M, PEG_GRIP_HALF_SIZE_M, PEG_STANDING_Z_M
from embodied_sim.registry import register
from embodied_sim.state import SceneState
from embodied_sim.targets import Target, keep_position, relative_to_object, relative_to_point, relative_to_start
from embodied_sim.task import Task, closing_fraction, distance, is_grasped, proximity, reach_progress, select_subtask
from embodied_sim.tasks.lift_cube import grasp_point
from embodied_sim.waypoints import GRIP_CLOSED, GRIP_OPEN, Plan, Waypoint, hold_forever

MIN_INSERTION_DEPTH_M = 0.02  # minimum depth of the peg in the hole, m
PEG_GRIP_WIDTH_M = 2 * PEG_GRIP_HALF_SIZE_M
PEGS = (Peg("peg_a"), Peg("peg_b"))
CARRY_OFFSET_M = np.array([0.0, 0.0, 0.02])  # offset from the hole to the carried tip, m
OVERCORRECTION_GAIN = 2.0  # gain of the expert's horizontal correction above the hole


def tip_from_hole(state: SceneState) -> FloatArray:
    """Return the position of the tip of the named peg relative to the hole, [N, 3], m."""
    tips = np.stack([state.points[peg.point_names[0]] for peg in PEGS], axis=1)
    return tips[np.arange(len(state)), state.object_order[:, 0]] - state.points["hole"]


def lower_tip(depth: float, gain: float = 1.0) -> Target:
    """Return a target that moves the tip of the named peg into the hole, wherever the fingers hold the peg.

    `depth` is that in the hole, m; negative is above it. `gain` is that of the horizontal correction: the arm stops
    about 2 mm short of its command.
    """
    axis_gains = np.array([gain, gain, 1.0])
    return lambda state, _: state.tool_pos - axis_gains * tip_from_hole(state) - np.array([0.0, 0.0, depth])


PICK_PLAN: Plan = (
    Waypoint(relative_to_object(z=0.08), GRIP_OPEN, tolerance=0.02),
    Waypoint(grasp_point, GRIP_OPEN, tolerance=0.01, timeout_steps=15),
    Waypoint(keep_position, GRIP_CLOSED, hold_steps=4),
)
CARRY_PLAN: Plan = (
    Waypoint(relative_to_start(z=0.12), GRIP_CLOSED, tolerance=0.015),
    Waypoint(lower_tip(-0.075), GRIP_CLOSED, tolerance=0.01),
    Waypoint(lower_tip(-0.012, gain=OVERCORRECTION_GAIN), GRIP_CLOSED, tolerance=0.005, hold_steps=1, timeout_steps=8),
)
INSERT_PLAN: Plan = tuple(
    Waypoint(lower_tip(d, gain=OVERCORRECTION_GAIN), GRIP_CLOSED, tolerance=0.005, timeout_steps=20)
    for d in (-0.002, 0.006, 0.015, 0.024)
)
RELEASE_PLAN: Plan = (
    Waypoint(keep_position, GRIP_OPEN, hold_steps=3),
    Waypoint(relative_to_start(z=0.08), GRIP_OPEN, tolerance=0.02),
)
END_WAYPOINT = hold_forever(GRIP_OPEN)
FULL_PLAN: Plan = (*PICK_PLAN, *CARRY_PLAN, *INSERT_PLAN, *RELEASE_PLAN, END_WAYPOINT)


BLIND_INSERT_PLAN: Plan = (
    CARRY_PLAN[0],
    *(
        Waypoint(relative_to_point("hole", z=height + PEG_STANDING_Z_M), GRIP_CLOSED, tolerance=0.01)
        for height in (0.06, 0.015, -0.024)
    ),
    *RELEASE_PLAN,
    END_WAYPOINT,
)
"""Carry and insert without a peg in the fingers."""


@register
class InsertPeg(Task):
    """Pick the named peg, carry it over the hole and push it in by 2 cm; the total clearance is 2 mm."""

    name = "insert_peg"
    props = (Pegboard(), *PEGS)
    observed_points = ("hole",)
    subtasks = ("reach", "grasp", "carry", "insert")
    max_episode_steps = 100
    templates = (
        "insert the {color} {thing} into the hole",
        "put the {color} {thing} into the board",
        "pick up the {color} {thing} and push it into the hole of the board",
        "plug the {color} {thing} into the board, leave the {other_color} one",
    )
    paraphrases = (
        "place the {color} {thing} in the hole",
        "push the {color} {thing} into the hole",
        "fit the {color} {thing} into the board",
        "slide the {color} {thing} down into the hole",
        "the {color} {thing} goes into the hole",
        "take the {color} {thing} and insert it into the board",
        "stick the {color} {thing} into the hole of the board",
        "put the {color} {thing}, not the {other_color} one, into the hole",
        "fit the {color} {thing} into the board and keep the {other_color} one out",
        "slide the {color} {thing} into the hole instead of the {other_color} one",
        "the {other_color} one stays on the table, push the {color} {thing} into the board",
    )
    reversed_instructions = (
        "pull the {color} {thing} out of the hole",
        "take the {color} {thing} out of the board",
        "remove the {color} {thing} from the hole of the board",
        "lift the {color} {thing} out of the hole",
        "get the {color} {thing} out of the board",
        "draw the {color} {thing} out of the hole",
    )

    def extra_observation(self, state: SceneState) -> tuple[FloatArray, ...]:
        """Return the position of the tip of the named peg relative to the hole."""
        return (tip_from_hole(state),)

    def current_subtask(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        offset, peg = tip_from_hole(now), now.object_position()
        is_entering = (np.abs(offset[:, :2]) < 0.004).all(axis=1) & (offset[:, 2] < CARRY_OFFSET_M[2])
        carry_progress = proximity(distance(offset, CARRY_OFFSET_M), distance(tip_from_hole(start), CARRY_OFFSET_M))
        insert_progress = (CARRY_OFFSET_M[2] - offset[:, 2]) / (CARRY_OFFSET_M[2] + MIN_INSERTION_DEPTH_M)
        return select_subtask(
            reach_progress(now, start, SceneState.object_position),
            (distance(now.tool_pos, peg) < 0.025, closing_fraction(now.gripper_opening, PEG_GRIP_WIDTH_M)),
            (is_grasped(now, peg, PEG_GRIP_WIDTH_M), carry_progress),
            (is_entering, insert_progress),
        )

    def success(self, now: SceneState) -> np.ndarray:
        offset = tip_from_hole(now)
        return (np.abs(offset[:, :2]) < 2 * HOLE_CLEARANCE_M).all(axis=1) & (offset[:, 2] < -MIN_INSERTION_DEPTH_M)

    def expert_plan(self) -> Plan:
        return FULL_PLAN

    def post_success_plans(self) -> tuple[Plan, ...]:
        return retreat_plans(GRIP_OPEN)

    def failure_plans(self) -> Mapping[str, tuple[Plan, ...]]:
        carry_plan, release = (*PICK_PLAN, *CARRY_PLAN), (*RELEASE_PLAN, END_WAYPOINT)
        partial_plans = tuple((*carry_plan, *INSERT_PLAN[:n]) for n in (1, 2, 3))
        hold = Waypoint(keep_position, GRIP_CLOSED, hold_steps=6)
        pull_out = (Waypoint(lower_tip(-0.05), GRIP_CLOSED, tolerance=0.01), hold_forever(GRIP_CLOSED))
        offsets = ((0.045, 0.0), (-0.045, 0.0), (0.0, 0.045), (0.0, -0.045), (-0.1, 0.0), (0.0, -0.1))
        pick_offsets = ((0.05, 0.0), (-0.05, 0.0), (0.0, 0.075))
        return {
            "stall": (*(stall_after(FULL_PLAN, n) for n in (1, 2, 3, 4, 5, 6)), *map(stall_after, partial_plans)),
            "drop": (
                (*PICK_PLAN, CARRY_PLAN[0], *release),
                *((*PICK_PLAN, CARRY_PLAN[0], *shift_targets((CARRY_PLAN[1],), x, y), *release) for x, y in offsets),
            ),
            "undo": ((*carry_plan, *INSERT_PLAN, hold, *pull_out), *((*plan, *pull_out) for plan in partial_plans)),
            "wrong_object": (misperceive(FULL_PLAN), *(misperceive((*plan, *release)) for plan in partial_plans[1:])),
            "miss": (
                *((*PICK_PLAN, *shift_targets((*CARRY_PLAN, *INSERT_PLAN), x, y), *release) for x, y in offsets),
                *((*shift_targets(PICK_PLAN, x, y), *BLIND_INSERT_PLAN) for x, y in pick_offsets),
                *(override_grip((*PICK_PLAN, *BLIND_INSERT_PLAN), grip) for grip in (GRIP_OPEN, GRIP_CLOSED)),
            ),
        }
