"""Shared by pick-and-place tasks: plans, progress and a base class."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.plan_variants import misperceive, miss_plans, override_grip, retreat_plans, shift_targets, stall_after
from embodied_sim.props.prop import ITEM_HALF_SIZE_M
from embodied_sim.state import SceneState
from embodied_sim.targets import keep_position, relative_to_start
from embodied_sim.task import ITEM_WIDTH_M, Task, closing_fraction, distance, is_grasped, reach_progress, select_subtask
from embodied_sim.tasks.lift_cube import PICK_PLAN
from embodied_sim.waypoints import GRIP_CLOSED, GRIP_OPEN, Plan, Waypoint

CARRY_HEIGHT_M = 0.12  # height of the center of a carried object, m
MAX_REST_GAP_M = 0.012  # maximum vertical distance of the center of an object at rest from its target, m

TargetFn = Callable[[SceneState], FloatArray]  # state -> target of the center of the placed object, [N, 3], m

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


def place_miss_plans(target_fn: TargetFn) -> tuple[Plan, ...]:
    """Return plans with all motions but without the object: next to it, above it, open, closed, or releasing."""
    full_plan = place_plan(target_fn)
    carry_plan = full_plan[len(PICK_PLAN) :]
    return (
        *((*shift_targets(PICK_PLAN, x, y), *carry_plan) for x, y in MISS_OFFSETS_M),
        *((*shift_targets(PICK_PLAN, z=z), *carry_plan) for z in (0.05, 0.08)),
        *miss_plans(full_plan, beside=(), above=()),
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
    now: SceneState, start: SceneState, target_fn: TargetFn, max_distance: float
) -> tuple[np.ndarray, FloatArray]:
    """Return subtask (0 reach, 1 grasp, 2 place; int64 [N]) and completed fraction [N] of the named object.

    `max_distance` is that of `is_at_rest`.
    """
    position, start_position, target = now.object_position(), start.object_position(), target_fn(now)
    is_placed = is_at_rest(position, target, max_distance)
    carry_progress = 1.0 - remaining_distance(position, target) / remaining_distance(start_position, target_fn(start))
    open_fraction = np.clip((now.gripper_opening - ITEM_WIDTH_M) / (0.08 - ITEM_WIDTH_M), 0.0, 1.0)
    release_progress = np.where(is_released(now, position), 1.0, open_fraction)
    place_progress = np.where(is_placed, 0.9 + 0.1 * release_progress, 0.9 * carry_progress)
    return select_subtask(
        reach_progress(now, start, SceneState.object_position),
        (distance(now.tool_pos, position) < 0.025, closing_fraction(now.gripper_opening, ITEM_WIDTH_M)),
        (is_placed | is_grasped(now, position, ITEM_WIDTH_M), place_progress),
    )


class PickPlaceTask(Task):
    """Base class: put the named object at a target and release it."""

    subtasks: ClassVar[tuple[str, ...]] = ("reach", "grasp", "place")
    max_distance: ClassVar[float]  # maximum horizontal distance of a placed object from its target, m
    miss_offsets: ClassVar[tuple[tuple[float, float], ...]] = ()
    """Offsets (x, y) from the target at which an object that is put down is not placed, m."""
    undo_waypoints: ClassVar[Plan] = ()  # waypoints that remove a placed object from its target

    @staticmethod
    @abstractmethod
    def target(state: SceneState) -> FloatArray:
        """Return the target of the center of the named object, [N, 3], m."""

    def extra_observation(self, state: SceneState) -> tuple[FloatArray, ...]:
        """Return the position of the named object relative to its target."""
        return (state.object_position() - self.target(state),)

    def current_subtask(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        return pick_place_subtask(now, start, self.target, self.max_distance)

    def success(self, now: SceneState) -> np.ndarray:
        position = now.object_position()
        return is_at_rest(position, self.target(now), self.max_distance) & is_released(now, position)

    def expert_plan(self) -> Plan:
        return place_plan(self.target)

    def post_success_plans(self) -> tuple[Plan, ...]:
        return retreat_plans(GRIP_OPEN)

    def failure_plans(self) -> Mapping[str, tuple[Plan, ...]]:
        full_plan = place_plan(self.target)
        high_plan = (*full_plan[:5], lower_to(self.target, above=0.03))
        removals = ((*full_plan, *self.undo_waypoints), stall_after((*full_plan, *PICK_UP_PLAN)))
        return {
            "stall": (*(stall_after(full_plan, n) for n in (1, 2, 3, 4, 5, 6)), stall_after(high_plan)),
            "drop": drop_plans(self.target),
            "undo": (undo_plan(self.target), *removals),
            "wrong_object": (misperceive(full_plan),),
            "miss": (*place_miss_plans(self.target), *(place_plan(self.target, x, y) for x, y in self.miss_offsets)),
        }
