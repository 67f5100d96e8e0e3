"""Lift the named cube off the table."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sim.control import FloatArray
from sim.experts import OPEN, SHUT, Plan, Waypoint, gripped, missed, mistaken, moved, rest, stalled, stay
from sim.props.base import HALF
from sim.registry import register
from sim.state import SceneState
from sim.task import WIDTH, closing, distance, holds, nearness
from sim.tasks.common import CabinetTask

HEIGHT = 0.12
"""How far above the table the cube counts as lifted, m."""
_GRASP_Z = np.array([0.0, 0.0, -0.002])


def above_cube(state: SceneState, _: FloatArray) -> FloatArray:
    """10 cm above the named cube."""
    return state.object() + np.array([0.0, 0.0, 0.1])


def at_cube(state: SceneState, _: FloatArray) -> FloatArray:
    """Where the fingers take the named cube."""
    return state.object() + _GRASP_Z


PICK: Plan = (
    Waypoint(above_cube, OPEN, tolerance=0.02),
    Waypoint(at_cube, OPEN, tolerance=0.01),
    Waypoint(stay, SHUT, hold=4),
)


def raised(height: float) -> Plan:
    """The cube picked and lifted by `height` m."""
    return (*PICK, Waypoint(moved(z=height), SHUT, tolerance=0.015))


LIFT: Plan = (*raised(0.17), rest(SHUT))


@register
class LiftCube(CabinetTask):
    """Reach for the named cube, grasp it, lift it by 12 cm; the other cube is in the way of those who do not read."""

    name = "lift_cube"
    steps = ("reach", "grasp", "lift")
    max_episode_steps = 60
    templates = (
        "lift the {colour} cube",
        "pick up the {colour} cube",
        "raise the {colour} block off the table",
        "grab the {colour} cube and lift it up",
    )
    paraphrases = (
        "raise the {colour} cube",
        "lift up the {colour} block",
        "take the {colour} cube off the table",
        "grasp the {colour} cube and raise it",
        "hoist the {colour} block",
        "bring the {colour} cube up into the air",
        "take hold of the {colour} cube and lift it",
        "hold the {colour} block above the table",
        "get the {colour} cube up",
    )
    opposites = (
        "put the {colour} cube down",
        "lower the {colour} cube to the table",
        "set the {colour} block back on the table",
        "let the {colour} cube down",
        "bring the {colour} block down to the table",
        "place the {colour} cube on the table",
        "return the {colour} cube to the table",
        "lay the {colour} block down",
    )

    def stage(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        cube = now.object()
        height = cube[:, 2] - HALF
        held = holds(now, cube, WIDTH)
        at_hand = distance(now.tool, cube) < 0.025
        stage = np.where(held, 2, np.where(at_hand, 1, 0))
        reach = nearness(distance(now.tool, cube) - 0.02, distance(start.tool, start.object()) - 0.02)
        share = np.select([held, at_hand], [height / HEIGHT, closing(now.opening, WIDTH)], reach)
        return stage, share

    def success(self, now: SceneState) -> np.ndarray:
        return (now.object()[:, 2] - HALF > HEIGHT) & holds(now, now.object(), WIDTH)

    def expert(self) -> Plan:
        return LIFT

    def failures(self) -> Mapping[str, tuple[Plan, ...]]:
        lower = (Waypoint(moved(z=-0.17), SHUT, tolerance=0.02, patience=12), Waypoint(stay, OPEN, hold=3))
        leave = (Waypoint(moved(x=-0.05, z=0.12), OPEN), rest(OPEN))
        return {
            "stall": (
                *(stalled(LIFT, n) for n in (1, 2, 3)),
                *(stalled(raised(z), 4) for z in (0.03, 0.06, 0.085, 0.1)),
            ),
            "drop": tuple((*raised(z), Waypoint(stay, OPEN, hold=4), *leave) for z in (0.05, 0.08, 0.1, 0.17)),
            "undo": ((*LIFT[:-1], Waypoint(stay, SHUT, hold=6), *lower, *leave),),
            "wrong_object": (mistaken(LIFT),),
            "miss": (
                *(missed(LIFT, x, y) for x, y in ((0.05, 0.0), (-0.05, 0.0), (0.0, 0.07), (0.0, -0.07))),
                *(missed(LIFT, z=z) for z in (0.05, 0.08)),
                *(gripped(LIFT, grip) for grip in (OPEN, SHUT)),
                gripped(LIFT, OPEN, after=3),
            ),
        }
