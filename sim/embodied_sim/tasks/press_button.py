"""Press the named button and keep it down."""

from collections.abc import Mapping

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.layout import Layout
from embodied_sim.plan_variants import misperceive, override_grip, shift_targets, stall_after
from embodied_sim.props import Button
from embodied_sim.props.button import BUTTON_REST_Z_M
from embodied_sim.registry import register
from embodied_sim.state import SceneState
from embodied_sim.targets import Target, relative_to_start
from embodied_sim.task import Task, reach_progress, select_subtask
from embodied_sim.waypoints import GRIP_CLOSED, GRIP_OPEN, HOLD_FOREVER_STEPS, Plan, Waypoint, hold_forever

PRESSED_DEPTH_M = 0.018  # minimum travel of a pressed cap, m
FINGERTIP_OFFSET_M = 0.009  # distance from the tool down to the finger tips, m


def press_depth(state: SceneState) -> FloatArray:
    """Return the travel of the named button [N], m."""
    return BUTTON_REST_Z_M - state.object_position()[:, 2]


def move_to_depth(target_depth: float) -> Target:
    """Return a target with the finger tips at the top of the named button when pressed by that depth, m."""

    def goal(state: SceneState, _: FloatArray) -> FloatArray:
        button_top = state.object_position()
        return np.column_stack(
            [button_top[:, :2], np.full(len(button_top), BUTTON_REST_Z_M + FINGERTIP_OFFSET_M - target_depth)]
        )

    return goal


APPROACH_PLAN: Plan = (
    Waypoint(move_to_depth(-0.08), GRIP_CLOSED, tolerance=0.02),
    Waypoint(move_to_depth(-0.015), GRIP_CLOSED, tolerance=0.008),
)
END_WAYPOINT = hold_forever(GRIP_CLOSED)


def press_by(target_depth: float, hold_steps: int = 0) -> Plan:
    """Press the named button by that depth, m."""
    return (
        *APPROACH_PLAN,
        Waypoint(move_to_depth(target_depth), GRIP_CLOSED, tolerance=0.004, hold_steps=hold_steps, timeout_steps=12),
    )


PRESS_PLAN: Plan = (*press_by(0.04), Waypoint(move_to_depth(0.04), GRIP_CLOSED, hold_steps=HOLD_FOREVER_STEPS))


@register
class PressButton(Task):
    """Move the closed hand over the named button, press it by 1.8 of its 3 cm and hold it down."""

    name = "press_button"
    props = (Button("near_button", (0.47, 0.0)), Button("far_button", (0.56, 0.2)))
    subtasks = ("reach", "press")
    max_episode_steps = 40
    templates = (
        "press the {color} {thing}",
        "push the {color} {thing} down and keep it down",
        "hold the {color} {thing} down",
        "press down the {color} {thing}, not the {other_color} one",
    )
    paraphrases = (
        "push the {color} {thing}",
        "push down the {color} {thing}",
        "keep the {color} {thing} pressed",
        "press and hold the {color} {thing}",
        "activate the {color} {thing}",
        "go to the {color} {thing} and press it",
        "hit the {color} {thing}",
        "depress the {color} {thing}",
    )

    @property
    def objects(self) -> tuple[str, ...]:
        return tuple(prop.name for prop in self.fixtures)

    def extra_observation(self, state: SceneState) -> tuple[FloatArray, ...]:
        """Return the travel of the named button."""
        return (press_depth(state)[:, None],)

    def current_subtask(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        offset, depth = np.array([0.0, 0.0, FINGERTIP_OFFSET_M]), press_depth(now)
        return select_subtask(
            reach_progress(now, start, lambda state: state.object_position() + offset, margin=0.01),
            (depth > 0.002, depth / PRESSED_DEPTH_M),
        )

    def success(self, now: SceneState) -> np.ndarray:
        return press_depth(now) > PRESSED_DEPTH_M

    def named_bodies(self, layout: Layout) -> tuple[str, ...]:
        return (f"{super().named_bodies(layout)[0]}_cap",)

    def expert_plan(self) -> Plan:
        return PRESS_PLAN

    def failure_plans(self) -> Mapping[str, tuple[Plan, ...]]:
        leave_waypoints = (Waypoint(relative_to_start(z=0.08), GRIP_CLOSED, tolerance=0.02), END_WAYPOINT)
        partial_presses = tuple(map(press_by, (0.005, 0.009, 0.013)))
        slip_offsets = ((-0.07, 0.0), (0.0, 0.07), (0.0, -0.07))
        slip_waypoints = [Waypoint(relative_to_start(x, y), GRIP_CLOSED, tolerance=0.02) for x, y in slip_offsets]
        miss_offsets = ((-0.065, 0.0), (0.065, 0.0), (0.0, 0.075), (0.0, -0.075))
        return {
            "stall": (*(stall_after(PRESS_PLAN, n) for n in (1, 2)), *map(stall_after, partial_presses)),
            "drop": tuple((*plan, slip, *leave_waypoints) for plan in partial_presses for slip in slip_waypoints),
            "undo": tuple(
                (*plan, *leave_waypoints) for plan in (*partial_presses, press_by(0.04), press_by(0.04, hold_steps=6))
            ),
            "wrong_object": (
                misperceive(PRESS_PLAN),
                *((*misperceive(plan), END_WAYPOINT) for plan in partial_presses),
            ),
            "miss": (
                *(shift_targets(PRESS_PLAN, x, y) for x, y in miss_offsets),
                *(shift_targets(PRESS_PLAN, z=z) for z in (0.036, 0.05)),
                override_grip(PRESS_PLAN, GRIP_OPEN),
            ),
        }
