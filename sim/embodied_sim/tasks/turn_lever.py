"""Turn the lever in the named direction."""

from collections.abc import Mapping

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.layout import Layout
from embodied_sim.plan_variants import retreat_plans, shift_targets, stall_after
from embodied_sim.props import Lever
from embodied_sim.registry import register
from embodied_sim.state import SceneState
from embodied_sim.targets import Target, relative_to_start
from embodied_sim.task import Task, reach_progress, select_subtask
from embodied_sim.tasks.sides import misperceive_side
from embodied_sim.waypoints import GRIP_CLOSED, Plan, Waypoint, hold_forever

TURNED_ANGLE_RAD = np.deg2rad(60.0)  # minimum angle between the turned lever and the direction to the robot, rad
PUSH_RADIUS_M = 0.088  # distance from the pivot at which the closed hand pushes, m
CONTACT_ANGLE_RAD = 0.29  # angle between the lever's arm and a closed hand that touches it there, rad


def turn_sign(state: SceneState) -> FloatArray:
    """Return the named direction [N]: -1 clockwise, 1 anticlockwise, viewed from above."""
    return np.where(state.side_index == 0, -1.0, 1.0)


def turned_angle(state: SceneState) -> FloatArray:
    """Return the angle of the lever in the named direction [N], rad."""
    return turn_sign(state) * state.joints["lever"]


def point_around_pivot(state: SceneState, angle: FloatArray, z: float = 0.0) -> FloatArray:
    """Return the point [N, 3] at that angle [N] around the pivot (rad, named direction), `z` m above the arm."""
    direction = np.column_stack([-np.cos(angle), -turn_sign(state) * np.sin(angle), np.zeros(len(angle))])
    return state.points["pivot"] + PUSH_RADIUS_M * direction + np.array([0.0, 0.0, z])


def contact_point(state: SceneState) -> FloatArray:
    """Return the position [N, 3] of a closed hand that touches the lever on the side to push."""
    return point_around_pivot(state, turned_angle(state) - CONTACT_ANGLE_RAD)


def move_to_angle(angle: float, z: float = 0.0) -> Target:
    """Return a target at that angle around the pivot, rad, `z` m above the arm."""
    return lambda state, _: point_around_pivot(state, np.full(len(state), angle), z)


def sweep_through(*angles: float) -> Plan:
    """Move the closed hand through these angles around the pivot, rad."""
    return tuple(Waypoint(move_to_angle(angle), GRIP_CLOSED, timeout_steps=12) for angle in angles)


def approach_plan(angle: float) -> Plan:
    """Move down next to the lever at that angle around the pivot, rad."""
    above = Waypoint(move_to_angle(angle, z=0.09), GRIP_CLOSED, tolerance=0.02)
    return (above, Waypoint(move_to_angle(angle), GRIP_CLOSED))


APPROACH_PLAN = approach_plan(-0.8)
END_WAYPOINT = hold_forever(GRIP_CLOSED)
LEAVE_PLAN: Plan = (Waypoint(relative_to_start(z=0.1), GRIP_CLOSED, tolerance=0.02),)
TURN_PLAN: Plan = (*APPROACH_PLAN, *sweep_through(-0.4, 0.0, 0.4, 0.8, 1.2))


def push_back(angle: float) -> Plan:
    """Move down behind the lever at that angle, rad, and push it back."""
    return (*approach_plan(angle), *sweep_through(*np.arange(angle - 0.4, 0.2, -0.4)))


@register
class TurnLever(Task):
    """Move the closed hand next to the lever and push its arm through 60 degrees in the named direction."""

    name = "turn_lever"
    props = (Lever(),)
    observed_points = ("pivot", "handle")
    sides = ("clockwise", "anticlockwise")
    subtasks = ("reach", "turn")
    max_episode_steps = 60
    templates = (
        "turn the lever {side}",
        "push the orange lever {side}",
        "rotate the lever {side}, seen from above",
        "swing the orange handle round, {side}",
    )
    paraphrases = (
        "turn the orange lever {side}",
        "move the lever {side}",
        "rotate the orange handle {side}",
        "push the lever round {side}",
        "swivel the lever {side}",
        "bring the lever {side}",
        "turn the handle {side}",
        "get the lever round {side}",
    )

    def extra_observation(self, state: SceneState) -> tuple[FloatArray, ...]:
        """Return the contact point relative to the tool, and the lever's angle in the named direction."""
        return (contact_point(state) - state.tool_pos, turned_angle(state)[:, None])

    def current_subtask(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        angle, start_angle = turned_angle(now), turned_angle(start)
        turn_progress = (angle - start_angle) / (TURNED_ANGLE_RAD - start_angle)
        # A lever that was turned in the wrong direction must be turned back first.
        first_fraction = reach_progress(now, start, contact_point) * np.clip(1.0 + turn_progress, 0.0, 1.0)
        return select_subtask(first_fraction, (angle > start_angle + 0.05, turn_progress))

    def success(self, now: SceneState) -> np.ndarray:
        return turned_angle(now) > TURNED_ANGLE_RAD

    def named_bodies(self, layout: Layout) -> tuple[str, ...]:
        return ("lever_arm",)

    def expert_plan(self) -> Plan:
        return (*TURN_PLAN, END_WAYPOINT)

    def post_success_plans(self) -> tuple[Plan, ...]:
        return retreat_plans(GRIP_CLOSED, 0.1)

    def failure_plans(self) -> Mapping[str, tuple[Plan, ...]]:
        partial_angles = ((-0.3, -0.1), (-0.3, 0.15), (0.0, 0.35), (0.0, 0.55))
        partial_turns = tuple((*APPROACH_PLAN, *sweep_through(*angles)) for angles in partial_angles)
        returns = ((TURN_PLAN, 2.1), (partial_turns[3], 1.6), (partial_turns[2], 1.4))
        full_plan = self.expert_plan()
        return {
            "stall": (*(stall_after(TURN_PLAN, n) for n in (1, 2)), *((*plan, END_WAYPOINT) for plan in partial_turns)),
            "drop": tuple((*plan, *LEAVE_PLAN, END_WAYPOINT) for plan in partial_turns),
            "undo": tuple((*plan, *LEAVE_PLAN, *push_back(angle), END_WAYPOINT) for plan, angle in returns),
            "wrong_object": tuple(misperceive_side((*plan, END_WAYPOINT)) for plan in (TURN_PLAN, *partial_turns[1:])),
            "miss": (
                *(shift_targets(full_plan, z=z) for z in (0.05, 0.07)),
                *(shift_targets(full_plan, x=x) for x in (-0.1, -0.08)),
            ),
        }
