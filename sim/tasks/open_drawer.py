"""Open the drawer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sim.control import FloatArray
from sim.experts import OPEN, SHUT, Plan, Waypoint, from_point, gripped, missed, moved, rest, stalled, stay, withdrawn
from sim.layout import Layout
from sim.registry import register
from sim.state import SceneState
from sim.task import closing, distance, nearness
from sim.tasks.common import CabinetTask
from sim.tasks.lift_cube import LIFT

OPENED = 0.13
"""How far the drawer must be out to count as open, m."""
NECK_WIDTH = 0.016
"""Thickness of the knob's neck, m."""


above_knob = from_point("knob", z=0.1)
at_knob = from_point("knob")
"""Where the fingers take the knob."""
TAKE_KNOB: Plan = (
    Waypoint(above_knob, OPEN, tolerance=0.02),
    Waypoint(at_knob, OPEN, tolerance=0.008),
    Waypoint(stay, SHUT, hold=4),
)
PULL: Plan = (*TAKE_KNOB, Waypoint(moved(x=-0.17), SHUT, tolerance=0.015, patience=25))
RELEASE: Plan = (Waypoint(stay, OPEN, hold=3), Waypoint(moved(z=0.12), OPEN, tolerance=0.02))


def elsewhere() -> tuple[Plan, ...]:
    """Ways from the knob to places over the table, and to rest there: the drawer stays open whatever comes next."""

    def to(x: float, y: float, z: float) -> Waypoint:
        return Waypoint(lambda state, _: np.tile([x, y, z], (len(state), 1)), OPEN, tolerance=0.02)

    up = Waypoint(moved(z=0.12), OPEN, tolerance=0.02)
    spots = ((0.4, -0.15), (0.45, 0.0), (0.5, -0.2), (0.35, 0.1))
    return tuple((up, to(x, y, 0.2), to(x, y, low), rest(OPEN)) for x, y in spots for low in (0.16, 0.09))


@register
class OpenDrawer(CabinetTask):
    """Reach for the knob, grasp it, pull the drawer out by 13 of its 16 cm."""

    name = "open_drawer"
    steps = ("reach", "grasp", "pull")
    max_episode_steps = 60
    templates = (
        "open the drawer",
        "pull the drawer open",
        "slide the drawer out of the cabinet",
        "grab the green knob and pull out the drawer",
    )
    paraphrases = (
        "open the cabinet",
        "pull out the drawer",
        "draw the drawer out",
        "slide the drawer open",
        "take the knob and open the drawer",
        "pull the drawer by its green knob",
        "get the drawer open",
        "bring the drawer out of the cabinet",
        "tug the drawer towards you until it is open",
    )
    opposites = (
        "close the drawer",
        "push the drawer shut",
        "slide the drawer back into the cabinet",
        "shut the drawer",
        "push the drawer in",
        "close the cabinet",
        "slide the drawer shut",
        "get the drawer closed",
    )

    def stage(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        out = now.joints["drawer"] > 0.015
        at_hand = distance(now.tool, now.points["knob"]) < 0.02
        stage = np.where(out, 2, np.where(at_hand, 1, 0))
        reach = nearness(
            distance(now.tool, now.points["knob"]) - 0.015, distance(start.tool, start.points["knob"]) - 0.015
        )
        share = np.select([out, at_hand], [now.joints["drawer"] / OPENED, closing(now.opening, NECK_WIDTH)], reach)
        return stage, share

    def success(self, now: SceneState) -> np.ndarray:
        return now.joints["drawer"] > OPENED

    def named_bodies(self, layout: Layout) -> tuple[str, ...]:
        return ("drawer",)

    def expert(self) -> Plan:
        return (*PULL, rest(SHUT))

    def afterwards(self) -> tuple[Plan, ...]:
        return tuple((RELEASE[0], *way) for way in (*withdrawn(OPEN, 0.12), *elsewhere()))

    def failures(self) -> Mapping[str, tuple[Plan, ...]]:
        end = rest(OPEN)
        half = tuple((*TAKE_KNOB, Waypoint(moved(x=-x), SHUT, tolerance=0.015)) for x in (0.04, 0.07, 0.1, 0.12))
        shut = Waypoint(moved(x=0.17), SHUT, tolerance=0.015, patience=20)
        return {
            "stall": (*(stalled(PULL, n) for n in (1, 2, 3)), *(stalled(plan, 4) for plan in half)),
            "drop": tuple((*plan, *RELEASE, end) for plan in half),
            "undo": ((*PULL, shut, *RELEASE, end), *((*plan, shut, *RELEASE, end) for plan in half)),
            "wrong_object": (LIFT,),
            "miss": (
                *(missed(PULL, x, y) for x, y in ((-0.07, 0.0), (-0.05, 0.0), (-0.02, -0.07), (-0.02, 0.08))),
                *(missed(PULL, y=y) for y in (-0.05, 0.05)),
                *(missed(PULL, z=z) for z in (0.05, 0.07)),
                *(gripped(PULL, grip) for grip in (OPEN, SHUT)),
                gripped(PULL, OPEN, after=3),
            ),
        }
