"""How a thing is pushed along the table into a zone: across, level with the zone, then on, away from the robot.

One straight push along an axis at a time, because the faces of the fingers point along the axes: pushed aslant, a thing
turns and slips off.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sim.arm import STEP, WORKSPACE
from sim.control import FloatArray
from sim.experts import SHUT, Plan, Target, Waypoint, missed, moved
from sim.state import SceneState
from sim.tasks.sides import at_side

INSIDE = 0.035
"""How far along x and along y the middle of a thing may be from that of its zone, m: all of it is within."""
BESIDE, BEHIND = 0.07, 0.075
"""From the middle of a thing to where the hand comes down beside it (along y) and behind it (along x), m."""
CLEAR = 0.09
"""How far from the way of one thing and of the hand the other must be at the start, m."""
LEAD = 0.022
"""How far ahead of the hand its goal is while it pushes, m: slow enough for the thing to stop where the hand does."""
FOLLOW = 2.0
"""Of the correction along x in a push across: the hand keeps level with a thing that rolls off it."""
GAIN = 0.6
"""Of the correction along y in a push along x: the arm drifts outwards as it stretches."""
LOW, HIGH = 0.025, 0.11
"""Heights of the tool in a push and above the things, m; in a push the palm passes over them."""
CENTRE = 1.0
"""Of the correction along y that keeps the hand behind the middle of the thing."""
NEAR = 0.004
"""How near to its place a thing is pushed along each axis, m."""
AJAR = 0.25
"""Grip in a push along x: the fingers 3 cm apart, so that they touch the thing in two places and keep it straight."""
BACK = Waypoint(moved(z=0.1), SHUT, tolerance=0.03)
"""The hand out of the way."""


def at_height(place: FloatArray, height: float) -> FloatArray:
    """`place` [N, 3] at another height, m."""
    return np.column_stack([place[:, :2], np.full(len(place), height)])


def goal(state: SceneState, x: float = 0.0, y: float = 0.0) -> FloatArray:
    """(x, y) off the middle of the zone that is meant, [N, 3], m."""
    return at_side(state, "zone") + np.array([x, y, 0.0])


def to_go(state: SceneState, x: float = 0.0, y: float = 0.0) -> FloatArray:
    """[N, 2]: how far the named thing is from (x, y) off the middle of its zone, m along x and y."""
    return (goal(state, x, y) - state.object())[:, :2]


def behind(height: float) -> Target:
    """Behind the named thing, as far back as the hand can go."""

    def target(state: SceneState, _: FloatArray) -> FloatArray:
        place = at_height(state.object() + np.array([-BEHIND, 0.0, 0.0]), height)
        return np.maximum(place, WORKSPACE[0])

    return target


def beside(height: float, y: float = 0.0) -> Target:
    """On the side of the named thing from which it has to be pushed to be level with the zone, or `y` m off it."""

    def target(state: SceneState, _: FloatArray) -> FloatArray:
        place = state.object().copy()
        place[:, 1] -= BESIDE * np.sign(to_go(state, y=y)[:, 1])
        return at_height(place, height)

    return target


def pushing_across(y: float) -> Target:
    """Ahead of the hand along y, level with the thing along x, until that is level with the zone, or `y` m off it."""

    def target(state: SceneState, _: FloatArray) -> FloatArray:
        thing, tool = state.object(), state.tool
        way = np.sign(thing[:, 1] - tool[:, 1])
        step = way * np.clip(way * to_go(state, y=y)[:, 1] - NEAR, 0.0, LEAD)
        level = tool[:, 0] + FOLLOW * (thing - tool)[:, 0]
        return np.column_stack([level, tool[:, 1] + step, np.full(len(state), LOW)])

    return target


def pushing_on(x: float, y: float) -> Target:
    """Ahead of the hand along x, until the thing is (x, y) off the middle of the zone."""

    def target(state: SceneState, _: FloatArray) -> FloatArray:
        left = to_go(state, x, y)
        step = np.clip(left[:, 0] - NEAR, 0.0, LEAD)
        steer = GAIN * left[:, 1] + CENTRE * (state.object() - state.tool)[:, 1]
        side = np.where(step > 0, np.clip(steer, -STEP, STEP), 0.0)
        return at_height(state.tool + np.column_stack([step, side, 0 * step]), LOW)

    return target


def unless_there(plan: Plan, x: float, y: float) -> Plan:
    """The plan, passed over where the thing is (x, y) off the middle of the zone already."""

    def still_to_do(target: Target) -> Target:
        def where_needed(state: SceneState, began: FloatArray) -> FloatArray:
            off = np.abs(to_go(state, x, y)).max(axis=1, keepdims=True)
            return np.where(off < INSIDE - 0.01, state.tool, target(state, began))

        return where_needed

    return tuple(replace(waypoint, target=still_to_do(waypoint.target)) for waypoint in plan)


def pushed(x: float = 0.0, y: float = 0.0) -> Plan:
    """The thing pushed across and then on, to (x, y) off the middle of the zone; once more where it is not there yet;
    the hand stays there."""
    once = (
        Waypoint(beside(HIGH, y), SHUT, tolerance=0.025),
        Waypoint(beside(LOW, y), SHUT, tolerance=0.012, patience=12),
        Waypoint(pushing_across(y), SHUT, tolerance=0.006, hold=1, patience=35),
        Waypoint(moved(z=HIGH - LOW), SHUT, tolerance=0.04),
        Waypoint(behind(HIGH), AJAR, tolerance=0.02, patience=15),
        Waypoint(behind(LOW), AJAR, tolerance=0.012, patience=12),
        Waypoint(pushing_on(x, y), AJAR, tolerance=0.006, hold=2, patience=45),
    )
    return (*once, *unless_there((BACK, *once), x, y))


def to_goal(height: float, aside: float = 0.0) -> Waypoint:
    """The hand to the zone, or `aside` m to the left of it, with nothing."""
    return Waypoint(lambda state, _: at_height(goal(state, y=aside), height), AJAR, tolerance=0.015)


def strayed(x: float) -> Plan:
    """The thing lost on its way: the hand rises over it and goes on to the zone."""
    return (*pushed(x), Waypoint(moved(z=0.06), AJAR, tolerance=0.015), to_goal(0.085), to_goal(LOW))


def mimed(height: float, aside: float = 0.0) -> Plan:
    """The motions without the thing, both pushes at `height` over it, or `aside` m beside its way."""

    def level(x: float, y: float, z: float) -> Target:
        return lambda state, _: np.column_stack(
            [state.object()[:, 0] + x, goal(state)[:, 1] + y, np.full(len(state), z)]
        )

    return (
        *missed(pushed()[:1], x=aside),
        *missed((Waypoint(beside(height), SHUT, tolerance=0.012, patience=12),), x=aside),
        Waypoint(level(aside, 0.0, height), SHUT, tolerance=0.015),
        BACK,
        Waypoint(level(-BEHIND, aside, HIGH), AJAR, tolerance=0.02, patience=15),
        Waypoint(level(-BEHIND, aside, height), AJAR, tolerance=0.012, patience=12),
        to_goal(height, aside),
    )


def way_is_clear(thing: FloatArray, other: FloatArray, zone: FloatArray) -> bool:
    """Whether a push of `thing` to `zone`, across and then on, keeps clear of `other`, each [2], m."""
    lower, upper = sorted((thing[1], zone[1]))
    near = np.array(
        [[thing[0], np.clip(other[1], lower - BESIDE, upper)], [np.clip(other[0], thing[0] - BEHIND, zone[0]), zone[1]]]
    )
    return bool((np.linalg.norm(near - other, axis=1) > CLEAR).all())
