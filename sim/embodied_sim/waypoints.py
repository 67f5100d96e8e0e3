"""Waypoint plans of scripted policies, and their batched execution."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from embodied_sim.arm import MAX_TOOL_STEP_M
from embodied_sim.control import FloatArray
from embodied_sim.state import SceneState
from embodied_sim.targets import Target, keep_position

GRIP_OPEN, GRIP_CLOSED = -1.0, 1.0
HOLD_FOREVER_STEPS = 10**6  # control steps of a waypoint that ends a plan
STATE_FIELDS = ("_plan_index", "waypoint_index", "_arrived_steps", "_waypoint_steps", "_start_pos", "_speed")


@dataclass(frozen=True)
class Waypoint:
    """Move to `target` with the given grip, stay `hold_steps` control steps, then continue with the next waypoint."""

    target: Target
    grip: float
    tolerance: float = 0.012
    hold_steps: int = 0
    timeout_steps: int = 40  # control steps after which the plan continues although the goal was not reached


Plan = tuple[Waypoint, ...]


def hold_forever(grip: float) -> Waypoint:
    """Return a waypoint that keeps the pose until the episode ends."""
    return Waypoint(keep_position, grip, hold_steps=HOLD_FOREVER_STEPS)


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

    def snapshot(self) -> dict[str, np.ndarray]:
        """Return how far the plans are, as named arrays, for `restore` of a follower of the same plans."""
        return {name: getattr(self, name).copy() for name in STATE_FIELDS}

    def restore(self, snapshot: Mapping[str, np.ndarray]) -> None:
        """Continue the plans of a `snapshot`."""
        for name in STATE_FIELDS:
            getattr(self, name)[...] = snapshot[name]

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
