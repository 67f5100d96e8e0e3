"""Waypoint plans of scripted experts and deliberate failures, and their batched execution."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from embodied_sim.arm import MAX_TOOL_STEP_M
from embodied_sim.control import FloatArray
from embodied_sim.state import SceneState

GRIP_OPEN, GRIP_CLOSED = -1.0, 1.0
HOLD_FOREVER_STEPS = 10**6
"""Control steps of a waypoint that ends a plan."""

Target = Callable[[SceneState, FloatArray], FloatArray]
"""(state, tool position [N, 3] when the waypoint began) -> goal position [N, 3], m."""


@dataclass(frozen=True)
class Waypoint:
    """Move to `target` with the given grip, stay `hold_steps` control steps, then continue with the next waypoint."""

    target: Target
    grip: float
    tolerance: float = 0.012
    hold_steps: int = 0
    timeout_steps: int = 40
    """Control steps after which the plan continues although the goal was not reached."""


Plan = tuple[Waypoint, ...]


def keep_position(_: SceneState, start_pos: FloatArray) -> FloatArray:
    """Target of a waypoint that keeps the tool in place."""
    return start_pos


def hold_forever(grip: float) -> Waypoint:
    """Return a waypoint that keeps the pose until the episode ends."""
    return Waypoint(keep_position, grip, hold_steps=HOLD_FOREVER_STEPS)


def relative_to_start(x: float = 0.0, y: float = 0.0, z: float = 0.0) -> Target:
    """Return a target relative to the tool position at the start of the waypoint, m."""
    offset = np.array([x, y, z])
    return lambda state, start_pos: start_pos + offset


def relative_to_point(name: str, x: float = 0.0, y: float = 0.0, z: float = 0.0) -> Target:
    """Return a target relative to the current position of a point of the props, m."""
    offset = np.array([x, y, z])
    return lambda state, _: state.points[name] + offset


def relative_to_object(x: float = 0.0, y: float = 0.0, z: float = 0.0) -> Target:
    """Return a target relative to the current position of the named object, m."""
    offset = np.array([x, y, z])
    return lambda state, _: state.object_position() + offset


def stall_after(plan: Plan, num_waypoints: int | None = None) -> Plan:
    """Return the first `num_waypoints` waypoints of a plan (None: all), then hold the pose."""
    prefix = plan[:num_waypoints]
    grip = prefix[-1].grip if prefix else GRIP_OPEN
    return (*prefix, hold_forever(grip))


def misperceive(plan: Plan, perceive: Callable[[SceneState], SceneState] = SceneState.with_swapped_objects) -> Plan:
    """Return the plan with a changed perception, such as one object or side confused with the other."""

    def wrap_target(target: Target) -> Target:
        return lambda state, start_pos: target(perceive(state), start_pos)

    return tuple(replace(waypoint, target=wrap_target(waypoint.target)) for waypoint in plan)


def shift_targets(plan: Plan, x: float = 0.0, y: float = 0.0, z: float = 0.0) -> Plan:
    """Return the plan with every goal displaced by (x, y, z) m, so that the fingers miss the object."""

    def shift_target(target: Target) -> Target:
        return lambda state, start_pos: target(state, start_pos) + np.array([x, y, z])

    return tuple(w if w.target is keep_position else replace(w, target=shift_target(w.target)) for w in plan)


def override_grip(plan: Plan, grip: float, first_waypoint: int = 0) -> Plan:
    """Return the plan with a fixed grip from waypoint `first_waypoint` on."""
    return (*plan[:first_waypoint], *(replace(waypoint, grip=grip) for waypoint in plan[first_waypoint:]))


def miss_plans(
    plan: Plan, beside: Iterable[tuple[float, float]], above: Iterable[float] = (0.05, 0.08), num_shifted: int = 10**6
) -> tuple[Plan, ...]:
    """Return plans that miss the object that waypoint 2 grasps.

    The first `num_shifted` goals are displaced by each of the offsets (x, y) and by each height, m; or the fingers are
    always open, always closed, or open after the grasp.
    """
    offsets = (*((x, y, 0.0) for x, y in beside), *((0.0, 0.0, z) for z in above))
    return (
        *((*shift_targets(plan[:num_shifted], *offset), *plan[num_shifted:]) for offset in offsets),
        *(override_grip(plan, grip) for grip in (GRIP_OPEN, GRIP_CLOSED)),
        override_grip(plan, GRIP_OPEN, first_waypoint=3),
    )


def extend_plan(plan: Plan, continuations: Sequence[Plan]) -> tuple[Plan, ...]:
    """Return the plan without its final hold, followed by each of the continuations."""
    prefix = plan[:-1] if plan[-1] == hold_forever(plan[-1].grip) else plan
    return tuple((*prefix, *continuation) for continuation in continuations)


def retreat_plans(grip: float, height: float = 0.08) -> tuple[Plan, ...]:
    """Return plans that move up by `height` m and then stay, or move back, left or right."""
    up, end = Waypoint(relative_to_start(z=height), grip, tolerance=0.02), hold_forever(grip)
    offsets = ((-0.1, 0.0), (-0.05, 0.12), (-0.05, -0.12))
    return ((up, end), *((up, Waypoint(relative_to_start(x, y), grip, tolerance=0.02), end) for x, y in offsets))


class PlanFollower:
    """Follow one plan per environment, batched."""

    def __init__(self, num_envs: int) -> None:
        self._plans: list[Plan] = []
        self._plan_index = np.zeros(num_envs, np.int64)
        self.waypoint_index = np.zeros(num_envs, np.int64)
        """[N]: index of the current waypoint."""
        self.goal = np.zeros((num_envs, 3))
        """[N, 3]: last goal of the tool, m."""
        self._arrived_steps = np.zeros(num_envs, np.int64)
        self._waypoint_steps = np.zeros(num_envs, np.int64)
        self._start_pos = np.zeros((num_envs, 3))
        self._speed = np.ones(num_envs)

    def assign(self, rows: np.ndarray, plans: Sequence[Plan], speed: FloatArray, state: SceneState) -> None:
        """Start `plans[i]` in row `rows[i]` at `speed[i]`, relative to full speed."""
        for row, plan, row_speed in zip(rows, plans, speed, strict=True):
            if plan not in self._plans:
                self._plans.append(plan)
            self._plan_index[row] = self._plans.index(plan)
            self._speed[row] = row_speed
        self.waypoint_index[rows] = self._arrived_steps[rows] = self._waypoint_steps[rows] = 0
        self._start_pos[rows] = state.tool_pos[rows]

    def act(self, state: SceneState) -> FloatArray:
        """Return actions [N, 4] in [-1, 1] for the current state, and advance the plans."""
        self.goal = goal = np.zeros_like(state.tool_pos)
        indices = list(zip(self._plan_index.tolist(), self.waypoint_index.tolist(), strict=True))
        for p, w in set(indices):
            rows = (self._plan_index == p) & (self.waypoint_index == w)
            goal[rows] = self._plans[p][w].target(state, self._start_pos)[rows]
        waypoints = [self._plans[p][w] for p, w in indices]
        self._advance(state, waypoints)
        delta = (goal - state.target_pos) / MAX_TOOL_STEP_M
        max_delta = np.maximum(np.abs(delta).max(axis=1), 1e-9)
        delta *= np.minimum(1.0, self._speed / max_delta)[:, None]
        return np.column_stack([delta, [waypoint.grip for waypoint in waypoints]])

    def _advance(self, state: SceneState, waypoints: Sequence[Waypoint]) -> None:
        """Begin the next waypoint in the rows that have arrived or timed out."""
        limits = [(waypoint.tolerance, waypoint.hold_steps, waypoint.timeout_steps) for waypoint in waypoints]
        tolerance, hold_steps, timeout_steps = np.array(limits).T
        last_index = np.array([len(self._plans[p]) - 1 for p in self._plan_index])
        self._waypoint_steps += 1
        is_near = np.linalg.norm(self.goal - state.tool_pos, axis=1) < tolerance
        self._arrived_steps += is_near
        advancing = ((self._arrived_steps > hold_steps) & is_near) | (self._waypoint_steps > timeout_steps + hold_steps)
        advancing &= self.waypoint_index < last_index
        self.waypoint_index[advancing] += 1
        self._arrived_steps[advancing] = self._waypoint_steps[advancing] = 0
        self._start_pos[advancing] = state.tool_pos[advancing]
