"""Open the drawer, then lift the named cube: two tasks in one, said one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from sim.control import FloatArray
from sim.experts import OPEN, SHUT, Plan, Waypoint, gripped, missed, mistaken, moved, rest, stalled, stay
from sim.layout import Layout
from sim.registry import register
from sim.state import SceneState
from sim.tasks.common import CabinetTask, one_after_another
from sim.tasks.cube_in_drawer import OPENING
from sim.tasks.lift_cube import LIFT, LiftCube, raised
from sim.tasks.open_drawer import PULL, RELEASE, OpenDrawer
from sim.tasks.place_in_drawer import BESIDE_CUBE

WISHES = (OpenDrawer(), LiftCube())
WHOLE: Plan = (*OPENING, *LIFT)
PUSH_BACK = Waypoint(moved(x=0.17), SHUT, tolerance=0.015, patience=20)
"""The knob still in the fingers."""


@register
class OpenThenLift(CabinetTask):
    """Pull the drawer out by 13 cm and let go, lift the named cube by 12 cm; in the end both must hold at once."""

    name = "open_then_lift"
    steps = ("open", "lift")
    max_episode_steps = 110
    templates = one_after_another(*WISHES)

    def stage(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        opening, lifting = WISHES
        opened, (_, out) = opening.success(now), opening.progress(now, start)
        # The way to the cube begins where the drawer was let go.
        _, lifted = lifting.progress(now, replace(start, tool=now.points["knob"]))
        return np.where(opened, 1, 0), np.where(opened, lifted, out)

    def success(self, now: SceneState) -> np.ndarray:
        return np.logical_and.reduce([wish.success(now) for wish in WISHES])

    def named_bodies(self, layout: Layout) -> tuple[str, ...]:
        return ("drawer", *super().named_bodies(layout))

    def expert(self) -> Plan:
        return WHOLE

    def failures(self) -> Mapping[str, tuple[Plan, ...]]:
        end = rest(OPEN)
        lower = (Waypoint(moved(z=-0.17), SHUT, tolerance=0.02, patience=12), Waypoint(stay, OPEN, hold=3))
        half = Waypoint(moved(x=-0.1), SHUT, tolerance=0.015)
        return {
            "stall": (
                *(stalled(WHOLE, n) for n in (2, 4, 6, 8, 9)),
                *(stalled((*OPENING, *raised(z)), len(WHOLE) - 1) for z in (0.03, 0.06, 0.1)),
            ),
            "drop": (
                *((*OPENING, *raised(z), Waypoint(stay, OPEN, hold=4), end) for z in (0.05, 0.1, 0.17)),
                (*PULL[:-1], half, *RELEASE, *LIFT),
            ),
            "undo": (
                (*PULL, PUSH_BACK, *RELEASE, *LIFT),
                (*OPENING, *LIFT[:-1], Waypoint(stay, SHUT, hold=6), *lower, end),
            ),
            "wrong_object": (mistaken(WHOLE), LIFT),
            "miss": (
                *((*OPENING, *missed(LIFT, x, y)) for x, y in BESIDE_CUBE),
                *((*OPENING, *gripped(LIFT, grip)) for grip in (OPEN, SHUT)),
                *((*missed(PULL, -0.06, y), *RELEASE, *LIFT) for y in (-0.05, 0.05)),
            ),
        }
