"""Push the named thing along the table into a zone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from sim.arm import STEP, WORKSPACE
from sim.control import FloatArray
from sim.experts import SHUT, Plan, Target, Waypoint, mistaken, moved, stalled
from sim.layout import Layout
from sim.props import Slider, Zones
from sim.props.base import HALF
from sim.props.zones import ZONE_ACROSS
from sim.registry import register
from sim.state import SceneState
from sim.task import Task, distance, nearness
from sim.tasks.placing import LEAVE, TAKE, still
from sim.tasks.sides import SIDES, at_side, wrong_side

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
NEAR = 0.004
"""How near to its place a thing is pushed along each axis, m."""
AJAR = 0.25
"""Grip in a push along x: the fingers 3 cm apart, so that they touch the thing in two places and keep it straight."""
BACK = Waypoint(moved(z=0.1), SHUT, tolerance=0.03)
"""The hand out of the way."""
OFF = ((-0.062, 0.0), (0.0, 0.065), (0.0, -0.065), (-0.1, 0.0))
"""Offsets from the middle of a zone at which a thing is not all within, m."""
ASIDE = 0.085
"""How far beside the middle of a thing the hand passes without touching it, m."""


def at_height(place: FloatArray, height: float) -> FloatArray:
    """`place` [N, 3] at another height, m."""
    return np.column_stack([place[:, :2], np.full(len(place), height)])


def goal(state: SceneState, x: float = 0.0, y: float = 0.0) -> FloatArray:
    """(x, y) off the middle of the zone that is meant, [N, 3], m."""
    return at_side(state, "zone") + np.array([x, y, 0.0])


def to_go(state: SceneState, x: float = 0.0, y: float = 0.0) -> FloatArray:
    """[N, 2]: how far the named thing is from (x, y) off the middle of its zone, m along x and y."""
    return (goal(state, x, y) - state.object())[:, :2]


def behind(height: float, aside: float = 0.0) -> Target:
    """Behind the named thing, as far as the hand can go, and `aside` m to its left."""

    def target(state: SceneState, _: FloatArray) -> FloatArray:
        place = at_height(state.object() + np.array([-BEHIND, aside, 0.0]), height)
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

    def target(state: SceneState, began: FloatArray) -> FloatArray:
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
        side = np.where(
            step > 0, np.clip(GAIN * left[:, 1] + CENTRE * (state.object() - state.tool)[:, 1], -STEP, STEP), 0.0
        )
        return at_height(state.tool + np.column_stack([step, side, 0 * step]), LOW)

    return target


def unless_there(plan: Plan, x: float, y: float) -> Plan:
    """The plan, passed over where the thing is (x, y) off the middle of the zone already."""

    def still_to_do(target: Target) -> Target:
        def where_needed(state: SceneState, began: FloatArray) -> FloatArray:
            there = (np.abs(to_go(state, x, y)) < INSIDE - 0.01).all(axis=1)
            return np.where(there[:, None], state.tool, target(state, began))

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


def air(height: float, aside: float = 0.0) -> Plan:
    """The motions without the thing: over it, or beside it."""
    return (
        Waypoint(behind(HIGH, aside), AJAR, tolerance=0.02),
        Waypoint(behind(height, aside), AJAR, tolerance=0.012),
        to_goal(height, aside),
    )


WHOLE: Plan = pushed()


def way_is_clear(thing: FloatArray, other: FloatArray, zone: FloatArray) -> bool:
    """Whether a push of `thing` to `zone`, across and then on, keeps clear of `other`, each [2], m."""
    lower, upper = sorted((thing[1], zone[1]))
    near = np.array(
        [[thing[0], np.clip(other[1], lower - BESIDE, upper)], [np.clip(other[0], thing[0] - BEHIND, zone[0]), zone[1]]]
    )
    return bool((np.linalg.norm(near - other, axis=1) > CLEAR).all())


@register
class PushToZone(Task):
    """Come down behind the named thing and push it along the table until all of it is in the zone that is said.

    Left is the robot's left (y > 0). Carrying it there counts as well.
    """

    name = "push_to_zone"
    props = (Zones(), Slider("cube"), Slider("cylinder", shape="cylinder"))
    watched = ("left_zone", "right_zone")
    sides = SIDES
    steps = ("reach", "push")
    max_episode_steps = 140
    templates = (
        "push the {colour} {thing} into the {side} zone",
        "slide the {colour} {thing} to the zone on the {side}",
        "move the {colour} {thing} along the table into the {side} field",
        "shove the {colour} {thing} onto the {side} patch",
    )

    def layout(self, rng: np.random.Generator, start_poses: int) -> Layout:
        """A random start in which neither thing is in the way of the other, to either zone: where they stand says
        nothing about which one is meant."""
        while True:
            layout = super().layout(rng, start_poses)
            zones = [layout.fixtures[0] + (0.0, y) for y in (ZONE_ACROSS, -ZONE_ACROSS)]
            one, two = layout.items[:, :2]
            if all(way_is_clear(*pair, zone) for pair in ((one, two), (two, one)) for zone in zones):
                return layout

    def extra(self, state: SceneState) -> tuple[FloatArray, ...]:
        """The named thing as seen from its zone."""
        return (state.object() - goal(state),)

    def stage(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        left, at_start = np.abs(to_go(now)).sum(axis=1), np.abs(to_go(start)).sum(axis=1)
        place, place_at_start = (beside(LOW)(state, state.tool) for state in (now, start))
        ready = distance(now.tool, place) < 0.025
        stage = np.where(ready | (left < at_start - 0.01), 1, 0)
        reach = nearness(distance(now.tool, place) - 0.02, distance(start.tool, place_at_start) - 0.02)
        return stage, np.where(stage == 1, nearness(left - INSIDE, at_start - INSIDE), reach)

    def success(self, now: SceneState) -> np.ndarray:
        off = np.abs(now.object() - goal(now))
        return (off[:, :2] < INSIDE).all(axis=1) & (off[:, 2] < HALF + 0.01)

    def expert(self) -> Plan:
        return WHOLE

    def failures(self) -> Mapping[str, tuple[Plan, ...]]:
        out = (Waypoint(moved(y=0.12), SHUT, tolerance=0.02), Waypoint(moved(z=-0.09), SHUT, tolerance=0.02))
        return {
            "stall": (
                *(stalled(WHOLE, n) for n in (1, 2, 3, 5, 6)),
                *(still(pushed(x)) for x in (-0.055, -0.07, -0.085, -0.1)),
            ),
            "drop": tuple(strayed(x) for x in (-0.055, -0.07, -0.085)),
            "undo": (
                *((*WHOLE, BACK, *pushed(y=y)) for y in (0.12, -0.12)),
                (*WHOLE, BACK, *TAKE, *out, *LEAVE),
            ),
            "wrong_object": (mistaken(WHOLE), wrong_side(WHOLE), mistaken(wrong_side(WHOLE))),
            "miss": (
                *(air(z) for z in (0.075, 0.1)),
                *(air(LOW, aside) for aside in (ASIDE, -ASIDE)),
                *(pushed(x, y) for x, y in OFF),
            ),
        }
