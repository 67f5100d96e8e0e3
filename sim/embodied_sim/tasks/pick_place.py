"""Shared by pick-and-place tasks: plans and progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.props.prop import ITEM_HALF_SIZE_M
from embodied_sim.state import SceneState
from embodied_sim.task import ITEM_WIDTH_M, closing_fraction, distance, is_grasped, proximity
from embodied_sim.tasks.lift_cube import PICK_PLAN
from embodied_sim.waypoints import (
    GRIP_CLOSED,
    GRIP_OPEN,
    Plan,
    Waypoint,
    keep_position,
    override_grip,
    relative_to_start,
    shift_targets,
    stall_after,
)

CARRY_HEIGHT_M = 0.12
"""Height of the center of a carried object, m."""
MAX_REST_GAP_M = 0.012
"""Maximum vertical distance of the center of an object at rest from its target, m."""

TargetFn = Callable[[SceneState], FloatArray]
"""State -> target of the center of the placed object, [N, 3], m."""

RELEASE_PLAN: Plan = (Waypoint(keep_position, GRIP_OPEN, hold_steps=4),)
LEAVE_PLAN: Plan = (*RELEASE_PLAN, Waypoint(relative_to_start(z=0.1), GRIP_OPEN, tolerance=0.02))
PICK_UP_PLAN: Plan = (
    *(replace(w, timeout_steps=15) for w in PICK_PLAN),
    Waypoint(relative_to_start(z=CARRY_HEIGHT_M - ITEM_HALF_SIZE_M), GRIP_CLOSED, tolerance=0.02),
)
"""Pick up the named object and raise it to `CARRY_HEIGHT_M`; short timeouts help arms that stop 1 mm short."""
MISS_OFFSETS_M = ((0.05, 0.0), (-0.05, 0.0), (0.0, 0.075), (0.0, -0.075))
"""Offsets at which the fingers miss the object, m."""


def move_above(target_fn: TargetFn, height: float = CARRY_HEIGHT_M, x: float = 0.0, y: float = 0.0) -> Waypoint:
    """Move the held object to (x, y) from the target at `height` above the table, m."""

    def target(state: SceneState, _: FloatArray) -> FloatArray:
        return np.column_stack([target_fn(state)[:, :2] + (x, y), np.full(len(state), height)])

    return Waypoint(target, GRIP_CLOSED, tolerance=0.015)


def lower_to(target_fn: TargetFn, above: float = 0.004, x: float = 0.0, y: float = 0.0) -> Waypoint:
    """Move the held object to (x, y, above) from the target, m."""
    offset = np.array([x, y, above])
    return Waypoint(lambda state, _: target_fn(state) + offset, GRIP_CLOSED, tolerance=0.01, timeout_steps=15)


def place_plan(target_fn: TargetFn, x: float = 0.0, y: float = 0.0) -> Plan:
    """Pick up the named object, put it down (x, y) m from the target and leave."""
    return (*PICK_UP_PLAN, move_above(target_fn, x=x, y=y), lower_to(target_fn, x=x, y=y), *LEAVE_PLAN)


def then_stall(plan: Plan) -> Plan:
    """Follow the plan, then hold the pose."""
    return stall_after(plan, len(plan))


def undo_plan(target_fn: TargetFn) -> Plan:
    """Put the named object at the target, then pick it up again and put it on the table."""
    table_waypoints = (
        Waypoint(relative_to_start(y=-0.2), GRIP_CLOSED, tolerance=0.02),
        Waypoint(relative_to_start(z=-0.09), GRIP_CLOSED, tolerance=0.02, timeout_steps=12),
    )
    return (*place_plan(target_fn), *PICK_UP_PLAN, *table_waypoints, *LEAVE_PLAN)


def drop_plans(target_fn: TargetFn) -> tuple[Plan, ...]:
    """Return plans that drop the object on the way and continue without it."""
    empty_handed = (*override_grip((move_above(target_fn), lower_to(target_fn)), GRIP_OPEN), *LEAVE_PLAN)
    early_drops = (move_above(target_fn, x=-0.04, y=-0.14), move_above(target_fn, x=-0.1, y=-0.13))
    return (
        (*PICK_UP_PLAN, *RELEASE_PLAN, *empty_handed),
        (*PICK_UP_PLAN, *LEAVE_PLAN),
        *((*PICK_UP_PLAN, waypoint, *RELEASE_PLAN, *empty_handed) for waypoint in early_drops),
    )


def miss_plans(target_fn: TargetFn) -> tuple[Plan, ...]:
    """Return plans with all motions but without the object: next to it, above it, open, closed, or releasing."""
    full_plan = place_plan(target_fn)
    return (
        *((*shift_targets(PICK_PLAN, x, y), *full_plan[len(PICK_PLAN) :]) for x, y in MISS_OFFSETS_M),
        *((*shift_targets(PICK_PLAN, z=z), *full_plan[len(PICK_PLAN) :]) for z in (0.05, 0.08)),
        *(override_grip(full_plan, grip) for grip in (GRIP_OPEN, GRIP_CLOSED)),
        override_grip(full_plan, GRIP_OPEN, first_waypoint=len(PICK_PLAN)),
    )


def is_released(now: SceneState, position: FloatArray) -> np.ndarray:
    """Return whether the fingers do not hold an object at that position, bool [N]."""
    return (now.gripper_opening > ITEM_WIDTH_M + 0.012) | (distance(now.tool_pos, position) > 0.06)


def is_at_rest(position: FloatArray, target: FloatArray, max_distance: float) -> np.ndarray:
    """Return whether the object is at its target, held or not, bool [N]; `max_distance` is horizontal, m."""
    horizontal = np.linalg.norm(position[:, :2] - target[:, :2], axis=1)
    return (horizontal < max_distance) & (np.abs(position[:, 2] - target[:, 2]) < MAX_REST_GAP_M)


def remaining_distance(position: FloatArray, target: FloatArray) -> FloatArray:
    """Return the length of the object's path up to the carry height, over the target and down, [N], m."""
    horizontal = np.linalg.norm(position[:, :2] - target[:, :2], axis=1)
    drop_height = np.maximum(position[:, 2] - target[:, 2], 0.0)
    detour = np.maximum(CARRY_HEIGHT_M - position[:, 2], 0.0) + CARRY_HEIGHT_M - target[:, 2]
    away_fraction = np.clip(horizontal / 0.05, 0.0, 1.0)
    return horizontal + away_fraction * detour + (1.0 - away_fraction) * drop_height


def pick_place_subtask(
    now: SceneState, start: SceneState, role: int, target: FloatArray, start_target: FloatArray, max_distance: float
) -> tuple[np.ndarray, FloatArray]:
    """Return subtask (0 reach, 1 grasp, 2 place; int64 [N]) and completed fraction [N] of one object.

    Args:
        now: Current state.
        start: State at the start of the episode.
        role: Role of the object.
        target: Current target of the object, [N, 3], m.
        start_target: Target at the start, [N, 3], m.
        max_distance: See `is_at_rest`.
    """
    position, start_position = now.object_position(role), start.object_position(role)
    is_placed = is_at_rest(position, target, max_distance)
    is_carrying = is_placed | is_grasped(now, position, ITEM_WIDTH_M)
    is_near = distance(now.tool_pos, position) < 0.025
    reach_progress = proximity(distance(now.tool_pos, position) - 0.02, distance(start.tool_pos, start_position) - 0.02)
    carry_progress = 1.0 - remaining_distance(position, target) / remaining_distance(start_position, start_target)
    open_fraction = np.clip((now.gripper_opening - ITEM_WIDTH_M) / (0.08 - ITEM_WIDTH_M), 0.0, 1.0)
    release_progress = np.where(is_released(now, position), 1.0, open_fraction)
    subtask = np.select([is_carrying, is_near], [2, 1], 0)
    fraction = np.select(
        [is_placed, is_carrying, is_near],
        [0.9 + 0.1 * release_progress, 0.9 * carry_progress, closing_fraction(now.gripper_opening, ITEM_WIDTH_M)],
        reach_progress,
    )
    return subtask, np.clip(fraction, 0.0, 1.0)
