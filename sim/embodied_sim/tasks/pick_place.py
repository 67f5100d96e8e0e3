"""What the tasks share in which a thing is picked up and put down somewhere: the way, and how far along it is."""

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
"""Height at which the middle of a thing is carried, m."""
MAX_REST_GAP_M = 0.012
"""How far above its place the middle of a thing may be and still count as resting there, m."""

TargetFn = Callable[[SceneState], FloatArray]
"""State -> where the middle of the named thing belongs when it has been put down, [N, 3], m."""

RELEASE_PLAN: Plan = (Waypoint(keep_position, GRIP_OPEN, hold_steps=4),)
LEAVE_PLAN: Plan = (*RELEASE_PLAN, Waypoint(relative_to_start(z=0.1), GRIP_OPEN, tolerance=0.02))
PICK_UP_PLAN: Plan = (
    *(replace(w, timeout_steps=15) for w in PICK_PLAN),
    Waypoint(relative_to_start(z=CARRY_HEIGHT_M - ITEM_HALF_SIZE_M), GRIP_CLOSED, tolerance=0.02),
)
"""The named thing picked up and raised to where it is carried; an arm that stays a millimetre short grasps soon."""
MISS_OFFSETS_M = ((0.05, 0.0), (-0.05, 0.0), (0.0, 0.075), (0.0, -0.075))
"""Offsets at which the fingers miss the thing, m."""


def move_above(target_fn: TargetFn, height: float = CARRY_HEIGHT_M, x: float = 0.0, y: float = 0.0) -> Waypoint:
    """To `height` above the table and (x, y) from the place, m, with what is held."""

    def target(state: SceneState, _: FloatArray) -> FloatArray:
        return np.column_stack([target_fn(state)[:, :2] + (x, y), np.full(len(state), height)])

    return Waypoint(target, GRIP_CLOSED, tolerance=0.015)


def lower_to(target_fn: TargetFn, above: float = 0.004, x: float = 0.0, y: float = 0.0) -> Waypoint:
    """To (x, y, above) from the place, m, with what is held."""
    offset = np.array([x, y, above])
    return Waypoint(lambda state, _: target_fn(state) + offset, GRIP_CLOSED, tolerance=0.01, timeout_steps=15)


def place_plan(target_fn: TargetFn, x: float = 0.0, y: float = 0.0) -> Plan:
    """The named thing picked up, put down (x, y) m from its place and left there."""
    return (*PICK_UP_PLAN, move_above(target_fn, x=x, y=y), lower_to(target_fn, x=x, y=y), *LEAVE_PLAN)


def then_stall(plan: Plan) -> Plan:
    """The plan, and then no movement."""
    return stall_after(plan, len(plan))


def undo_plan(target_fn: TargetFn) -> Plan:
    """The named thing put in its place, then taken up again and put on the table."""
    table_waypoints = (
        Waypoint(relative_to_start(y=-0.2), GRIP_CLOSED, tolerance=0.02),
        Waypoint(relative_to_start(z=-0.09), GRIP_CLOSED, tolerance=0.02, timeout_steps=12),
    )
    return (*place_plan(target_fn), *PICK_UP_PLAN, *table_waypoints, *LEAVE_PLAN)


def drop_plans(target_fn: TargetFn) -> tuple[Plan, ...]:
    """Ways to lose the thing on its way: picked up, let go, the rest of the way without it."""
    empty_handed = (*override_grip((move_above(target_fn), lower_to(target_fn)), GRIP_OPEN), *LEAVE_PLAN)
    early_drops = (move_above(target_fn, x=-0.04, y=-0.14), move_above(target_fn, x=-0.1, y=-0.13))
    return (
        (*PICK_UP_PLAN, *RELEASE_PLAN, *empty_handed),
        (*PICK_UP_PLAN, *LEAVE_PLAN),
        *((*PICK_UP_PLAN, waypoint, *RELEASE_PLAN, *empty_handed) for waypoint in early_drops),
    )


def miss_plans(target_fn: TargetFn) -> tuple[Plan, ...]:
    """All the motions without the thing: beside it, above it, an open hand, a fist, a grip that gives."""
    full_plan = place_plan(target_fn)
    return (
        *((*shift_targets(PICK_PLAN, x, y), *full_plan[len(PICK_PLAN) :]) for x, y in MISS_OFFSETS_M),
        *((*shift_targets(PICK_PLAN, z=z), *full_plan[len(PICK_PLAN) :]) for z in (0.05, 0.08)),
        *(override_grip(full_plan, grip) for grip in (GRIP_OPEN, GRIP_CLOSED)),
        override_grip(full_plan, GRIP_OPEN, first_waypoint=len(PICK_PLAN)),
    )


def is_released(now: SceneState, position: FloatArray) -> np.ndarray:
    """Whether the fingers are clear of a thing at that point: open, or elsewhere; bool [N]."""
    return (now.gripper_opening > ITEM_WIDTH_M + 0.012) | (distance(now.tool_pos, position) > 0.06)


def is_at_rest(position: FloatArray, target: FloatArray, max_distance: float) -> np.ndarray:
    """Whether the thing is down at its place, held or not, bool [N]; `within`: largest distance on the level, m."""
    horizontal = np.linalg.norm(position[:, :2] - target[:, :2], axis=1)
    return (horizontal < max_distance) & (np.abs(position[:, 2] - target[:, 2]) < MAX_REST_GAP_M)


def remaining_distance(position: FloatArray, target: FloatArray) -> FloatArray:
    """Length of the way of the thing up to where it is carried, over its place and down, [N], m."""
    horizontal = np.linalg.norm(position[:, :2] - target[:, :2], axis=1)
    drop_height = np.maximum(position[:, 2] - target[:, 2], 0.0)
    detour = np.maximum(CARRY_HEIGHT_M - position[:, 2], 0.0) + CARRY_HEIGHT_M - target[:, 2]
    away_fraction = np.clip(horizontal / 0.05, 0.0, 1.0)
    return horizontal + away_fraction * detour + (1.0 - away_fraction) * drop_height


def pick_place_subtask(
    now: SceneState, start: SceneState, role: int, target: FloatArray, start_target: FloatArray, max_distance: float
) -> tuple[np.ndarray, FloatArray]:
    """Step (0 reach, 1 grasp, 2 place; int64 [N]) and its share for the thing in that role.

    `place`, `at_start`: [N, 3], where it belongs now and where that was at the start; `within`: see `rests`.
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
