"""Push the named thing along the table into a zone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

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
BEHIND = 0.075
"""From the middle of a thing back (along x) to where the hand comes down, m."""
TOUCH = 0.034
"""The same when the fingers touch it, m."""
CLEAR = 0.095
"""How far from the way of one thing the other must be at the start, m."""
LEAD = 0.03
"""How far ahead of the hand its goal is while it pushes, m: slow enough for the thing to stop where the hand does."""
LOW, HIGH = 0.025, 0.11
"""Heights of the tool in a push and above the things, m; in a push the palm passes over them."""
AJAR = 0.25
"""Grip in a push: the fingers 3 cm apart, so that they touch the thing in two places and it does not turn aside."""
OFF = ((-0.062, 0.0), (0.0, 0.065), (0.0, -0.065), (-0.1, 0.0))
"""Offsets from the middle of a zone at which a thing is not all within, m."""
ASIDE = 0.085
"""How far beside the middle of a thing the hand passes without touching it, m."""


def flat(vector: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Direction [N, 3] on the level, and length [N, 1], of vectors [N, 3]."""
    level = vector * (1.0, 1.0, 0.0)
    length = np.linalg.norm(level, axis=1, keepdims=True)
    return level / np.maximum(length, 1e-6), length


def at_height(place: FloatArray, height: float) -> FloatArray:
    """`place` [N, 3] at another height, m."""
    return np.column_stack([place[:, :2], np.full(len(place), height)])


def goal(state: SceneState, x: float = 0.0, y: float = 0.0) -> FloatArray:
    """(x, y) off the middle of the zone that is meant, [N, 3], m."""
    return at_side(state, "zone") + np.array([x, y, 0.0])


def behind(back: float, height: float, aside: float = 0.0) -> Target:
    """`back` m nearer to the robot than the named thing and `aside` m to its left."""

    def target(state: SceneState, _: FloatArray) -> FloatArray:
        return at_height(state.object() + np.array([-back, aside, 0.0]), height)

    return target


def pushing(x: float, y: float, stop: float) -> Target:
    """Just ahead of the hand, the way that the thing has to go, until that is `stop` m from (x, y) off the middle."""

    def target(state: SceneState, _: FloatArray) -> FloatArray:
        ahead, length = flat(goal(state, x, y) - state.object())
        return at_height(state.tool + np.where(length > stop, np.minimum(length, LEAD), 0.0) * ahead, LOW)

    return target


def pushed(x: float = 0.0, y: float = 0.0, stop: float = 0.012) -> Plan:
    """The thing pushed until it is `stop` m from (x, y) off the middle of the zone; the hand stays there."""
    return (
        Waypoint(behind(BEHIND, HIGH), AJAR, tolerance=0.02),
        Waypoint(behind(BEHIND, LOW), AJAR, tolerance=0.012),
        Waypoint(behind(TOUCH, LOW), AJAR, tolerance=0.005, patience=6),
        Waypoint(pushing(x, y, stop), AJAR, tolerance=0.006, hold=2, patience=50),
    )


def to_goal(height: float, aside: float = 0.0) -> Waypoint:
    """The hand to the zone, or `aside` m to the left of it, with nothing."""
    return Waypoint(lambda state, _: at_height(goal(state, y=aside), height), AJAR, tolerance=0.015)


def strayed(stop: float) -> Plan:
    """The thing lost on its way: the hand rises over it and goes on to the zone."""
    return (*pushed(stop=stop), Waypoint(moved(z=0.06), AJAR, tolerance=0.015), to_goal(0.085), to_goal(LOW))


def air(height: float, aside: float = 0.0) -> Plan:
    """The motions without the thing: over it, or beside it."""
    return (
        Waypoint(behind(BEHIND, HIGH, aside), AJAR, tolerance=0.02),
        Waypoint(behind(BEHIND, height, aside), AJAR, tolerance=0.012),
        to_goal(height, aside),
    )


WHOLE: Plan = pushed()
BACK = Waypoint(moved(z=0.1), SHUT, tolerance=0.02)


def way_is_clear(thing: FloatArray, other: FloatArray, zone: FloatArray) -> bool:
    """Whether a push of `thing` to `zone` keeps clear of `other`, each [2], m."""
    length = float(np.linalg.norm(zone - thing))
    ahead = (zone - thing) / length
    along = np.clip((other - thing) @ ahead, 0.0, length)
    off = np.array([thing + along * ahead, thing - (BEHIND, 0.0)]) - other
    return bool((np.linalg.norm(off, axis=1) > (CLEAR, 0.075)).all())


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
    max_episode_steps = 100
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
        left, at_start = (flat(goal(state) - state.object())[1][:, 0] for state in (now, start))
        place, place_at_start = (behind(BEHIND, LOW)(state, state.tool) for state in (now, start))
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
                *(stalled(WHOLE, n) for n in (1, 2, 3)),
                *(still(pushed(stop=stop)) for stop in (0.065, 0.08, 0.1, 0.12)),
            ),
            "drop": tuple(strayed(stop) for stop in (0.065, 0.08, 0.1)),
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
