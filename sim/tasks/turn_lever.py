"""Turn the lever the way that is asked for."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sim.control import FloatArray
from sim.experts import SHUT, Plan, Target, Waypoint, missed, moved, rest, stalled, withdrawn
from sim.layout import Layout
from sim.props import Lever
from sim.registry import register
from sim.state import SceneState
from sim.task import Task, distance, nearness
from sim.tasks.sides import wrong_side

TURNED = np.deg2rad(60.0)
"""How far from pointing at the robot the lever must be turned, rad."""
RADIUS = 0.088
"""Distance from the pivot at which the closed hand pushes, m."""
LAG = 0.29
"""Angle between the arm and a closed hand that touches it there, rad."""


def sense(state: SceneState) -> FloatArray:
    """Which way is asked for [N]: -1 clockwise, 1 anticlockwise, seen from above."""
    return np.where(state.side == 0, -1.0, 1.0)


def turned(state: SceneState) -> FloatArray:
    """How far the lever is turned the way that is asked for [N], rad."""
    return sense(state) * state.joints["lever"]


def around(state: SceneState, angle: FloatArray, z: float = 0.0) -> FloatArray:
    """The point [N, 3] around the pivot at that angle [N] (rad, the way that is asked for), `z` m above the arm."""
    way = np.column_stack([-np.cos(angle), -sense(state) * np.sin(angle), np.zeros(len(angle))])
    return state.points["pivot"] + RADIUS * way + np.array([0.0, 0.0, z])


def touch(state: SceneState) -> FloatArray:
    """Where a closed hand is that touches the lever on the side from which it is to be pushed, [N, 3]."""
    return around(state, turned(state) - LAG)


def at(angle: float, z: float = 0.0) -> Target:
    """The hand at that angle around the pivot, `z` m above the arm."""
    return lambda state, _: around(state, np.full(len(state), angle), z)


def swept(*angles: float) -> Plan:
    """The closed hand brought through these angles around the pivot."""
    return tuple(Waypoint(at(angle), SHUT, patience=12) for angle in angles)


APPROACH: Plan = (Waypoint(at(-0.8, z=0.09), SHUT, tolerance=0.02), Waypoint(at(-0.8), SHUT))
END = rest(SHUT)
LEAVE: Plan = (Waypoint(moved(z=0.1), SHUT, tolerance=0.02),)
TURN: Plan = (*APPROACH, *swept(-0.4, 0.0, 0.4, 0.8, 1.2))


def back(angle: float) -> Plan:
    """From above: down behind the lever at that angle, and the lever pushed back."""
    return (
        Waypoint(at(angle, z=0.09), SHUT, tolerance=0.02),
        Waypoint(at(angle), SHUT),
        *swept(*np.arange(angle - 0.4, 0.2, -0.4)),
    )


@register
class TurnLever(Task):
    """Bring the closed hand beside the lever, push its arm through 60 degrees the way that is asked for."""

    name = "turn_lever"
    props = (Lever(),)
    watched = ("pivot", "handle")
    sides = ("clockwise", "anticlockwise")
    steps = ("reach", "turn")
    max_episode_steps = 60
    templates = (
        "turn the lever {side}",
        "push the orange lever {side}",
        "rotate the lever {side}, seen from above",
        "swing the orange handle round, {side}",
    )
    paraphrases = (
        "turn the orange lever {side}",
        "move the lever {side}",
        "rotate the orange handle {side}",
        "push the lever round {side}",
        "swivel the lever {side}",
        "bring the lever {side}",
        "turn the handle {side}",
        "get the lever round {side}",
    )

    def extra(self, state: SceneState) -> tuple[FloatArray, ...]:
        """Where the lever is to be pushed, from the tool, and how far it is turned the way that is asked for."""
        return (touch(state) - state.tool, turned(state)[:, None])

    def stage(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        moving = turned(now) > turned(start) + 0.05
        reach = nearness(distance(now.tool, touch(now)) - 0.02, distance(start.tool, touch(start)) - 0.02)
        turn = (turned(now) - turned(start)) / (TURNED - turned(start))
        # What has been turned the wrong way has to be turned back first.
        return np.where(moving, 1, 0), np.where(moving, turn, reach * np.clip(1.0 + turn, 0.0, 1.0))

    def success(self, now: SceneState) -> np.ndarray:
        return turned(now) > TURNED

    def named_bodies(self, layout: Layout) -> tuple[str, ...]:
        return ("lever_arm",)

    def expert(self) -> Plan:
        return (*TURN, END)

    def afterwards(self) -> tuple[Plan, ...]:
        return withdrawn(SHUT, 0.1)

    def failures(self) -> Mapping[str, tuple[Plan, ...]]:
        half = tuple((*APPROACH, *swept(*angles)) for angles in ((-0.3, -0.1), (-0.3, 0.15), (0.0, 0.35), (0.0, 0.55)))
        return {
            "stall": (*(stalled(TURN, n) for n in (1, 2)), *((*plan, END) for plan in half)),
            "drop": tuple((*plan, *LEAVE, END) for plan in half),
            "undo": tuple(
                (*plan, *LEAVE, *back(from_), END) for plan, from_ in ((TURN, 2.1), (half[3], 1.6), (half[2], 1.4))
            ),
            "wrong_object": (wrong_side((*TURN, END)), *(wrong_side((*plan, END)) for plan in half[1:])),
            "miss": (
                *(missed((*TURN, END), z=z) for z in (0.05, 0.07)),
                *(missed((*TURN, END), x=x) for x in (-0.1, -0.08)),
            ),
        }
