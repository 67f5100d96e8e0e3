"""Put the named cube into the open drawer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sim.control import FloatArray
from sim.experts import (
    OPEN,
    SHUT,
    Plan,
    Waypoint,
    from_point,
    gripped,
    missed,
    mistaken,
    moved,
    rest,
    stalled,
    stay,
    withdrawn,
)
from sim.layout import Layout
from sim.props import Cabinet, Item
from sim.props.base import HALF
from sim.registry import register
from sim.state import SceneState
from sim.tasks.common import CabinetTask
from sim.tasks.lift_cube import PICK
from sim.tasks.placing import pick_and_place, released

WALL = 0.085
"""From the middle of the tray to that of a cube at its walls, along each axis, m."""
LOW = 0.065
"""Height below which the middle of a cube in the tray is, m."""


over_tray = from_point("tray", x=-0.035, z=0.15)
"""Above the tray, clear of its walls."""
in_tray = from_point("tray", x=-0.035, z=0.05)
"""Low in the tray, the palm still above its front."""


def on_floor(state: SceneState) -> FloatArray:
    """Where the middle of a cube is that lies in the middle of the tray, [N, 3], m."""
    return state.points["tray"] + np.array([0.0, 0.0, HALF - 0.016])


def inside_tray(now: SceneState) -> np.ndarray:
    """Whether the named cube lies in the tray, bool [N]."""
    offset = np.abs(now.object() - now.points["tray"])
    return (offset[:, :2] < WALL).all(axis=1) & (now.object()[:, 2] < LOW)


CARRY: Plan = (
    *PICK,
    Waypoint(moved(z=0.17), SHUT, tolerance=0.02),
    Waypoint(over_tray, SHUT, tolerance=0.02),
    Waypoint(in_tray, SHUT, tolerance=0.015, patience=12),
    Waypoint(stay, OPEN, hold=3),
    Waypoint(moved(z=0.12), OPEN, tolerance=0.02),
)
DROP: Plan = (Waypoint(stay, OPEN, hold=4), Waypoint(moved(z=0.08), OPEN, tolerance=0.02))
BESIDE = tuple(Waypoint(moved(y=y, z=-0.1), SHUT, tolerance=0.02) for y in (-0.1, 0.1))
"""Ways to put the cube down on the table."""
BESIDE_CUBE = ((0.05, 0.0), (-0.05, 0.0), (0.0, 0.07))
"""Offsets at which the fingers miss the cube, m."""

AWAY: Plan = (Waypoint(moved(x=-0.1, y=-0.16), SHUT, tolerance=0.02), Waypoint(moved(z=-0.13), SHUT, patience=12))
"""From over the tray back to the table."""


@register
class PlaceInDrawer(CabinetTask):
    """Reach for the named cube, grasp it, put it down in the open drawer and let go."""

    name = "place_in_drawer"
    props = (Cabinet(out=(0.12, 0.155)), Item("red", "red"), Item("blue", "blue"))
    steps = ("reach", "grasp", "place")
    max_episode_steps = 80
    templates = (
        "put the {colour} cube into the drawer",
        "place the {colour} block in the drawer",
        "drop the {colour} cube into the open drawer",
        "pick up the {colour} cube and leave it in the drawer",
    )
    paraphrases = (
        "move the {colour} cube into the drawer",
        "the {colour} cube goes into the drawer",
        "lay the {colour} block in the drawer",
        "carry the {colour} cube over to the drawer and let it go",
        "transfer the {colour} block to the drawer",
        "grasp the {colour} cube and put it in the drawer",
        "set the {colour} cube down inside the drawer",
        "get the {colour} block into the drawer",
    )
    opposites = (
        "take the {colour} cube out of the drawer",
        "get the {colour} block from the drawer",
        "remove the {colour} cube from the drawer",
        "lift the {colour} cube out of the drawer",
        "pick the {colour} block out of the drawer",
        "empty the {colour} cube out of the drawer",
    )
    fulfils = ("open the drawer",)

    def stage(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        return pick_and_place(now, start, 0, on_floor(now), on_floor(start), WALL)

    def success(self, now: SceneState) -> np.ndarray:
        return inside_tray(now) & released(now, now.object())

    def named_bodies(self, layout: Layout) -> tuple[str, ...]:
        return ("drawer", *super().named_bodies(layout))

    def expert(self) -> Plan:
        return (*CARRY, rest(OPEN))

    def afterwards(self) -> tuple[Plan, ...]:
        return withdrawn(OPEN)

    def failures(self) -> Mapping[str, tuple[Plan, ...]]:
        carried, end = CARRY[:4], rest(OPEN)
        return {
            "stall": tuple(stalled(CARRY, n) for n in (1, 2, 3, 4, 5, 6)),
            "drop": (
                (*carried, *DROP, end),
                *((*carried, beside, *DROP, end) for beside in BESIDE),
                (*CARRY[:5], Waypoint(moved(x=-0.2), SHUT, tolerance=0.02), *DROP, end),
            ),
            "undo": tuple((*CARRY[:n], CARRY[4], *AWAY, *DROP, end) for n in (5, 6)),
            "wrong_object": (mistaken((*CARRY, end)),),
            "miss": (
                *((*missed(carried, x, y), *CARRY[4:], end) for x, y in BESIDE_CUBE),
                *((*missed(carried, z=z), *CARRY[4:], end) for z in (0.05, 0.08)),
                *((*gripped(CARRY, grip), end) for grip in (OPEN, SHUT)),
                (*gripped(CARRY, OPEN, after=3), end),
            ),
        }
