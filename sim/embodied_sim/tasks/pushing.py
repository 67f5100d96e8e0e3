"""Plans that push an object along the table into a zone: first across (y), then forward (x), away from the robot.

Each push is straight along one axis, because the faces of the fingers are aligned with the axes. Pushed diagonally, an
object turns and slips off.
"""

from dataclasses import replace

import numpy as np

from embodied_sim.arm import MAX_TOOL_STEP_M, WORKSPACE_BOUNDS_M
from embodied_sim.control import FloatArray
from embodied_sim.plan_variants import shift_targets
from embodied_sim.state import SceneState
from embodied_sim.targets import Target, relative_to_start
from embodied_sim.tasks.sides import side_point
from embodied_sim.waypoints import GRIP_CLOSED, Plan, Waypoint

ZONE_TOLERANCE_M = 0.035
"""Maximum distance of the object's center from that of its zone along x and y, m: it is fully inside."""
BESIDE_OFFSET_M, BEHIND_OFFSET_M = 0.07, 0.075
"""Distance from the object's center to the hand next to it (along y) and behind it (along x), m."""
MIN_CLEARANCE_M = 0.09
"""Minimum distance of the other object from the path of the pushed object and the hand at the start, m."""
PUSH_LEAD_M = 0.022
"""Distance from the hand to its goal during a push, m: slow enough that the object stops with the hand."""
FOLLOW_GAIN = 2.0  # gain of the correction along x in a push across: the hand follows an object that rolls off it
STEER_GAIN = 0.6  # gain of the correction along y in a push forward: the arm drifts outward as it stretches
PUSH_HEIGHT_M, TRAVEL_HEIGHT_M = 0.025, 0.11
"""Heights of the tool during a push and above the objects, m; during a push the palm passes over them."""
CENTERING_GAIN = 1.0  # gain of the correction along y that keeps the hand behind the object's center
PUSH_TOLERANCE_M = 0.004  # distance from the goal at which a push ends, along each axis, m
PUSH_GRIP = 0.25
"""Grip in a push forward: the fingers are 3 cm apart and touch the object at two points, which keeps it straight."""
RETREAT_WAYPOINT = Waypoint(relative_to_start(z=0.1), GRIP_CLOSED, tolerance=0.03)  # raise the hand


def with_height(position: FloatArray, height: float) -> FloatArray:
    """Return `position` [N, 3] at another height, m."""
    return np.column_stack([position[:, :2], np.full(len(position), height)])


def zone_target(state: SceneState, x: float = 0.0, y: float = 0.0) -> FloatArray:
    """Return the point at (x, y) from the center of the target zone, [N, 3], m."""
    return side_point(state, "zone") + np.array([x, y, 0.0])


def offset_to_zone(state: SceneState, x: float = 0.0, y: float = 0.0) -> FloatArray:
    """Return the offset [N, 2] from the named object to (x, y) from the center of its zone, m."""
    return (zone_target(state, x, y) - state.object_position())[:, :2]


def behind_object(height: float) -> Target:
    """Return a target behind the named object, limited to the workspace."""

    def target(state: SceneState, _: FloatArray) -> FloatArray:
        position = with_height(state.object_position() + np.array([-BEHIND_OFFSET_M, 0.0, 0.0]), height)
        return np.maximum(position, WORKSPACE_BOUNDS_M[0])

    return target


def beside_object(height: float, y: float = 0.0) -> Target:
    """Return a target next to the named object, for a push across to `y` m from the zone's center."""

    def target(state: SceneState, _: FloatArray) -> FloatArray:
        position = state.object_position().copy()
        position[:, 1] -= BESIDE_OFFSET_M * np.sign(offset_to_zone(state, y=y)[:, 1])
        return with_height(position, height)

    return target


def push_across(y: float) -> Target:
    """Return a target ahead of the hand along y, until the object is at `y` m from the zone's center along y."""

    def target(state: SceneState, _: FloatArray) -> FloatArray:
        position, tool_pos = state.object_position(), state.tool_pos
        direction = np.sign(position[:, 1] - tool_pos[:, 1])
        step = direction * np.clip(direction * offset_to_zone(state, y=y)[:, 1] - PUSH_TOLERANCE_M, 0.0, PUSH_LEAD_M)
        tracked_x = tool_pos[:, 0] + FOLLOW_GAIN * (position - tool_pos)[:, 0]
        return np.column_stack([tracked_x, tool_pos[:, 1] + step, np.full(len(state), PUSH_HEIGHT_M)])

    return target


def push_forward(x: float, y: float) -> Target:
    """Return a target ahead of the hand along x, until the object is at (x, y) from the zone's center."""

    def target(state: SceneState, _: FloatArray) -> FloatArray:
        remaining = offset_to_zone(state, x, y)
        step = np.clip(remaining[:, 0] - PUSH_TOLERANCE_M, 0.0, PUSH_LEAD_M)
        steer = STEER_GAIN * remaining[:, 1] + CENTERING_GAIN * (state.object_position() - state.tool_pos)[:, 1]
        lateral = np.where(step > 0, np.clip(steer, -MAX_TOOL_STEP_M, MAX_TOOL_STEP_M), 0.0)
        return with_height(state.tool_pos + np.column_stack([step, lateral, 0 * step]), PUSH_HEIGHT_M)

    return target


def skip_if_done(plan: Plan, x: float, y: float) -> Plan:
    """Return the plan with no motion where the object is already at (x, y) from the zone's center."""

    def skip_when_done(target: Target) -> Target:
        def conditional_target(state: SceneState, start_pos: FloatArray) -> FloatArray:
            offset = np.abs(offset_to_zone(state, x, y)).max(axis=1, keepdims=True)
            return np.where(offset < ZONE_TOLERANCE_M - 0.01, state.tool_pos, target(state, start_pos))

        return conditional_target

    return tuple(replace(waypoint, target=skip_when_done(waypoint.target)) for waypoint in plan)


def push_plan(x: float = 0.0, y: float = 0.0) -> Plan:
    """Push the object across and then forward to (x, y) from the zone's center, and repeat if it is not there."""
    single_push = (
        Waypoint(beside_object(TRAVEL_HEIGHT_M, y), GRIP_CLOSED, tolerance=0.025),
        Waypoint(beside_object(PUSH_HEIGHT_M, y), GRIP_CLOSED, tolerance=0.012, timeout_steps=12),
        Waypoint(push_across(y), GRIP_CLOSED, tolerance=0.006, hold_steps=1, timeout_steps=35),
        Waypoint(relative_to_start(z=TRAVEL_HEIGHT_M - PUSH_HEIGHT_M), GRIP_CLOSED, tolerance=0.04),
        Waypoint(behind_object(TRAVEL_HEIGHT_M), PUSH_GRIP, tolerance=0.02, timeout_steps=15),
        Waypoint(behind_object(PUSH_HEIGHT_M), PUSH_GRIP, tolerance=0.012, timeout_steps=12),
        Waypoint(push_forward(x, y), PUSH_GRIP, tolerance=0.006, hold_steps=2, timeout_steps=45),
    )
    return (*single_push, *skip_if_done((RETREAT_WAYPOINT, *single_push), x, y))


def move_to_zone(height: float, lateral_offset: float = 0.0) -> Waypoint:
    """Move the empty hand to the zone, or `lateral_offset` m to the left of it."""

    def target(state: SceneState, _: FloatArray) -> FloatArray:
        return with_height(zone_target(state, y=lateral_offset), height)

    return Waypoint(target, PUSH_GRIP, tolerance=0.015)


def stray_plan(x: float) -> Plan:
    """Lose the object on the way: the hand rises over it and continues to the zone."""
    rise = Waypoint(relative_to_start(z=0.06), PUSH_GRIP, tolerance=0.015)
    return (*push_plan(x), rise, move_to_zone(0.085), move_to_zone(PUSH_HEIGHT_M))


def mime_plan(height: float, lateral_offset: float = 0.0) -> Plan:
    """Perform both pushes without the object: at another height, or at `lateral_offset` m from its path."""

    def target_at(x: float, y: float, z: float) -> Target:
        def target(state: SceneState, _: FloatArray) -> FloatArray:
            return with_height(np.column_stack([state.object_position()[:, 0] + x, zone_target(state)[:, 1] + y]), z)

        return target

    behind = target_at(-BEHIND_OFFSET_M, lateral_offset, TRAVEL_HEIGHT_M)
    lower = Waypoint(beside_object(height), GRIP_CLOSED, tolerance=0.012, timeout_steps=12)
    return (
        *shift_targets((push_plan()[0], lower), x=lateral_offset),
        Waypoint(target_at(lateral_offset, 0.0, height), GRIP_CLOSED, tolerance=0.015),
        RETREAT_WAYPOINT,
        Waypoint(behind, PUSH_GRIP, tolerance=0.02, timeout_steps=15),
        Waypoint(target_at(-BEHIND_OFFSET_M, lateral_offset, height), PUSH_GRIP, tolerance=0.012, timeout_steps=12),
        move_to_zone(height, lateral_offset),
    )


def is_path_clear(position: FloatArray, other_position: FloatArray, zone: FloatArray) -> bool:
    """Return whether a push from `position` to `zone` keeps clear of `other_position`, each [2], m."""
    lower, upper = sorted((position[1], zone[1]))
    across = (position[0], np.clip(other_position[1], lower - BESIDE_OFFSET_M, upper))
    forward = (np.clip(other_position[0], position[0] - BEHIND_OFFSET_M, zone[0]), zone[1])
    nearest_points = np.array([across, forward])
    return bool((np.linalg.norm(nearest_points - other_position, axis=1) > MIN_CLEARANCE_M).all())
