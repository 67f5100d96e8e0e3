"""What the tasks share in which a thing is picked up and put down somewhere: the way, and how far along it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from sim.control import FloatArray
from sim.experts import OPEN, SHUT, Plan, Waypoint, gripped, missed, moved, stalled, stay
from sim.props.base import HALF
from sim.state import SceneState
from sim.task import WIDTH, closing, distance, holds, nearness
from sim.tasks.lift_cube import PICK

CARRY = 0.12
"""Height at which the middle of a thing is carried, m."""
SETTLED = 0.012
"""How far above its place the middle of a thing may be and still count as resting there, m."""

Place = Callable[[SceneState], FloatArray]
"""State -> where the middle of the named thing belongs when it has been put down, [N, 3], m."""

LET_GO: Plan = (Waypoint(stay, OPEN, hold=4),)
LEAVE: Plan = (*LET_GO, Waypoint(moved(z=0.1), OPEN, tolerance=0.02))
TAKE: Plan = (*(replace(w, patience=15) for w in PICK), Waypoint(moved(z=CARRY - HALF), SHUT, tolerance=0.02))
"""The named thing picked up and raised to where it is carried; an arm that stays a millimetre short grasps soon."""
BESIDE_THING = ((0.05, 0.0), (-0.05, 0.0), (0.0, 0.075), (0.0, -0.075))
"""Offsets at which the fingers miss the thing, m."""


def over(place: Place, height: float = CARRY, x: float = 0.0, y: float = 0.0) -> Waypoint:
    """To `height` above the table and (x, y) from the place, m, with what is held."""

    def target(state: SceneState, _: FloatArray) -> FloatArray:
        return np.column_stack([place(state)[:, :2] + (x, y), np.full(len(state), height)])

    return Waypoint(target, SHUT, tolerance=0.015)


def down(place: Place, above: float = 0.004, x: float = 0.0, y: float = 0.0) -> Waypoint:
    """To (x, y, above) from the place, m, with what is held."""
    offset = np.array([x, y, above])
    return Waypoint(lambda state, _: place(state) + offset, SHUT, tolerance=0.01, patience=15)


def put(place: Place, x: float = 0.0, y: float = 0.0) -> Plan:
    """The named thing picked up, put down (x, y) m from its place and left there."""
    return (*TAKE, over(place, x=x, y=y), down(place, x=x, y=y), *LEAVE)


def still(plan: Plan) -> Plan:
    """The plan, and then no movement."""
    return stalled(plan, len(plan))


def put_back(place: Place) -> Plan:
    """The named thing put in its place, then taken up again and put on the table."""
    table = (Waypoint(moved(y=-0.2), SHUT, tolerance=0.02), Waypoint(moved(z=-0.09), SHUT, tolerance=0.02, patience=12))
    return (*put(place), *TAKE, *table, *LEAVE)


def dropped(place: Place) -> tuple[Plan, ...]:
    """Ways to lose the thing on its way: picked up, let go, the rest of the way without it."""
    rest = (*gripped((over(place), down(place)), OPEN), *LEAVE)
    short = (over(place, x=-0.04, y=-0.14), over(place, x=-0.1, y=-0.13))
    return (
        (*TAKE, *LET_GO, *rest),
        (*TAKE, *LEAVE),
        *((*TAKE, there, *LET_GO, *rest) for there in short),
    )


def airs(place: Place) -> tuple[Plan, ...]:
    """All the motions without the thing: beside it, above it, an open hand, a fist, a grip that gives."""
    whole = put(place)
    return (
        *((*missed(PICK, x, y), *whole[len(PICK) :]) for x, y in BESIDE_THING),
        *((*missed(PICK, z=z), *whole[len(PICK) :]) for z in (0.05, 0.08)),
        *(gripped(whole, grip) for grip in (OPEN, SHUT)),
        gripped(whole, OPEN, after=len(PICK)),
    )


def released(now: SceneState, point: FloatArray) -> np.ndarray:
    """Whether the fingers are clear of a thing at that point: open, or elsewhere; bool [N]."""
    return (now.opening > WIDTH + 0.012) | (distance(now.tool, point) > 0.06)


def rests(thing: FloatArray, place: FloatArray, within: float) -> np.ndarray:
    """Whether the thing is down at its place, held or not, bool [N]; `within`: largest distance on the level, m."""
    level = np.linalg.norm(thing[:, :2] - place[:, :2], axis=1)
    return (level < within) & (np.abs(thing[:, 2] - place[:, 2]) < SETTLED)


def way_left(thing: FloatArray, place: FloatArray) -> FloatArray:
    """Length of the way of the thing up to where it is carried, over its place and down, [N], m."""
    level = np.linalg.norm(thing[:, :2] - place[:, :2], axis=1)
    fall = np.maximum(thing[:, 2] - place[:, 2], 0.0)
    detour = np.maximum(CARRY - thing[:, 2], 0.0) + CARRY - place[:, 2]
    away = np.clip(level / 0.05, 0.0, 1.0)
    return level + away * detour + (1.0 - away) * fall


def pick_and_place(
    now: SceneState, start: SceneState, role: int, place: FloatArray, at_start: FloatArray, within: float
) -> tuple[np.ndarray, FloatArray]:
    """Step (0 reach, 1 grasp, 2 place; int64 [N]) and its share for the thing in that role.

    `place`, `at_start`: [N, 3], where it belongs now and where that was at the start; `within`: see `rests`.
    """
    thing, began = now.object(role), start.object(role)
    down_there = rests(thing, place, within)
    placing = down_there | holds(now, thing, WIDTH)
    at_hand = distance(now.tool, thing) < 0.025
    reach = nearness(distance(now.tool, thing) - 0.02, distance(start.tool, began) - 0.02)
    carried = 1.0 - way_left(thing, place) / way_left(began, at_start)
    opened = np.clip((now.opening - WIDTH) / (0.08 - WIDTH), 0.0, 1.0)
    let_go = np.where(released(now, thing), 1.0, opened)
    stage = np.select([placing, at_hand], [2, 1], 0)
    share = np.select(
        [down_there, placing, at_hand], [0.9 + 0.1 * let_go, 0.9 * carried, closing(now.opening, WIDTH)], reach
    )
    return stage, np.clip(share, 0.0, 1.0)
