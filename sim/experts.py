"""Scripted experts and deliberate failures: plans of waypoints, followed by many worlds at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sim.arm import STEP
from sim.control import FloatArray
from sim.state import SceneState

OPEN, SHUT = -1.0, 1.0
FOR_EVER = 10**6
"""Control steps: a waypoint that is held so long ends a plan."""

Target = Callable[[SceneState, FloatArray], FloatArray]
"""(state, tool position [N, 3] when the waypoint began) -> goal position [N, 3], m."""


@dataclass(frozen=True)
class Waypoint:
    """Go there with the grip like that, stay `hold` control steps, then on to the next."""

    target: Target
    grip: float
    tolerance: float = 0.012
    hold: int = 0
    patience: int = 40
    """Control steps after which the plan goes on although the goal was not reached."""


Plan = tuple[Waypoint, ...]


def stay(_: SceneState, began: FloatArray) -> FloatArray:
    """The goal of a waypoint that keeps the tool where it is."""
    return began


def rest(grip: float) -> Waypoint:
    """Stay for ever as one is: the end of a plan."""
    return Waypoint(stay, grip, hold=FOR_EVER)


def moved(x: float = 0.0, y: float = 0.0, z: float = 0.0) -> Target:
    """A goal relative to where the tool was when the waypoint began, m."""
    offset = np.array([x, y, z])
    return lambda state, began: began + offset


def from_point(name: str, x: float = 0.0, y: float = 0.0, z: float = 0.0) -> Target:
    """A goal relative to that point of the props, wherever it is by then, m."""
    offset = np.array([x, y, z])
    return lambda state, _: state.points[name] + offset


def stalled(plan: Plan, after: int) -> Plan:
    """The first `after` waypoints, then stay for ever as one is."""
    kept = plan[:after]
    grip = kept[-1].grip if kept else OPEN
    return (*kept, rest(grip))


def mistaken(plan: Plan, seen: Callable[[SceneState], SceneState] = SceneState.swapped) -> Plan:
    """The same plan by somebody who sees the worlds like that: mistakes one object, or one side, for the other."""

    def swap(target: Target) -> Target:
        return lambda state, began: target(seen(state), began)

    return tuple(replace(waypoint, target=swap(waypoint.target)) for waypoint in plan)


def missed(plan: Plan, x: float = 0.0, y: float = 0.0, z: float = 0.0) -> Plan:
    """The same plan, every goal displaced by (x, y, z) m: the fingers close beside or above the thing."""

    def shift(target: Target) -> Target:
        return lambda state, began: target(state, began) + np.array([x, y, z])

    return tuple(
        waypoint if waypoint.target is stay else replace(waypoint, target=shift(waypoint.target)) for waypoint in plan
    )


def gripped(plan: Plan, grip: float, after: int = 0) -> Plan:
    """The same plan with the grip like that from waypoint `after` on: an open hand, a fist, a hand that lets go."""
    return (*plan[:after], *(replace(waypoint, grip=grip) for waypoint in plan[after:]))


def going_on(plan: Plan, ways: Sequence[Plan]) -> tuple[Plan, ...]:
    """The plan, its last rest left out, and then each of the ways to go on."""
    kept = plan[:-1] if plan[-1] == rest(plan[-1].grip) else plan
    return tuple((*kept, *way) for way in ways)


def withdrawn(grip: float, height: float = 0.08) -> tuple[Plan, ...]:
    """Ways to leave: up by `height` m and then back, to the left, to the right or nowhere, and rest there."""
    up, end = Waypoint(moved(z=height), grip, tolerance=0.02), rest(grip)
    aside = ((-0.1, 0.0), (-0.05, 0.12), (-0.05, -0.12))
    return ((up, end), *((up, Waypoint(moved(x, y), grip, tolerance=0.02), end) for x, y in aside))


class PlanFollower:
    """Follows one plan per world; the whole batch is advanced together."""

    def __init__(self, num_worlds: int) -> None:
        self._plans: list[Plan] = []
        self._plan = np.zeros(num_worlds, np.int64)
        self.waypoint = np.zeros(num_worlds, np.int64)
        """[N]: index of the waypoint under way."""
        self.goal = np.zeros((num_worlds, 3))
        """[N, 3]: where the tool was last sent, m."""
        self._arrived = np.zeros(num_worlds, np.int64)
        self._age = np.zeros(num_worlds, np.int64)
        self._began = np.zeros((num_worlds, 3))
        self._speed = np.ones(num_worlds)

    def assign(self, rows: np.ndarray, plans: Sequence[Plan], speed: FloatArray, state: SceneState) -> None:
        """Start `plans[i]` in world `rows[i]` at `speed[i]` (share of the full step)."""
        for row, plan, pace in zip(rows, plans, speed, strict=True):
            if plan not in self._plans:
                self._plans.append(plan)
            self._plan[row] = self._plans.index(plan)
            self._speed[row] = pace
        self.waypoint[rows] = self._arrived[rows] = self._age[rows] = 0
        self._began[rows] = state.tool[rows]

    def act(self, state: SceneState) -> FloatArray:
        """Actions [N, 4] in [-1, 1] for the state now; advances the plans."""
        goal, grip = np.zeros_like(state.tool), np.zeros(len(state))
        tolerance, hold, patience = np.zeros(len(state)), np.zeros(len(state)), np.zeros(len(state))
        last = np.array([len(plan) - 1 for plan in self._plans])[self._plan]
        for p, w in sorted({(int(p), int(w)) for p, w in zip(self._plan, self.waypoint, strict=True)}):
            rows = (self._plan == p) & (self.waypoint == w)
            waypoint = self._plans[p][w]
            goal[rows] = waypoint.target(state, self._began)[rows]
            grip[rows], tolerance[rows] = waypoint.grip, waypoint.tolerance
            hold[rows], patience[rows] = waypoint.hold, waypoint.patience
        self.goal = goal
        self._advance(state, goal, tolerance, hold, patience, last)
        move = (goal - state.commanded) / STEP
        length = np.maximum(np.abs(move).max(axis=1), 1e-9)
        move *= np.minimum(1.0, self._speed / length)[:, None]
        return np.column_stack([move, grip])

    def _advance(self, state: SceneState, goal: FloatArray, tolerance: FloatArray, hold: FloatArray,
                 patience: FloatArray, last: np.ndarray) -> None:  # fmt: skip
        self._age += 1
        near = np.linalg.norm(goal - state.tool, axis=1) < tolerance
        self._arrived += near
        go_on = ((self._arrived > hold) & near) | (self._age > patience + hold)
        go_on &= self.waypoint < last
        self.waypoint[go_on] += 1
        self._arrived[go_on] = self._age[go_on] = 0
        self._began[go_on] = state.tool[go_on]
