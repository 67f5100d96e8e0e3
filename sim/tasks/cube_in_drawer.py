"""Put the named cube into the drawer and shut it: open, pick, place, close."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from sim.control import FloatArray
from sim.experts import OPEN, SHUT, Plan, Waypoint, from_point, gripped, missed, mistaken, moved, rest, stalled
from sim.layout import Layout
from sim.props.base import HALF
from sim.registry import register
from sim.state import SceneState
from sim.task import WIDTH, distance, holds, nearness
from sim.tasks.common import CabinetTask
from sim.tasks.lift_cube import LIFT
from sim.tasks.open_drawer import OPENED, PULL, RELEASE
from sim.tasks.place_in_drawer import BESIDE, BESIDE_CUBE, CARRY, DROP, inside_tray

SHUT_AT = 0.02
"""How far out the drawer may be to count as shut, m."""
TRAVEL = 0.45
"""Length over which reaching and carrying are measured, m: from the drawer to the farthest cube."""


before_knob_high = from_point("knob", x=-0.08, z=0.1)
"""In front of the knob, high."""
before_knob = from_point("knob", x=-0.075)
"""In front of the knob, at its height."""


def closed(now: SceneState, shut_at: float) -> FloatArray:
    """How far the hand has come to the knob and the drawer to `shut_at` m, [N] in [0, 1]."""
    push = 1.0 - distance(now.tool, before_knob(now, now.tool)) / TRAVEL
    shut = 1.0 - (now.joints["drawer"] - shut_at) / (OPENED - shut_at)
    return 0.4 * np.clip(push, 0.0, 1.0) + 0.6 * np.clip(shut, 0.0, 1.0)


OPENING: Plan = (*PULL, *RELEASE)
CLOSING: Plan = (
    Waypoint(before_knob_high, SHUT, tolerance=0.03),
    Waypoint(before_knob, SHUT, tolerance=0.015),
    Waypoint(moved(x=0.25), SHUT, tolerance=0.01, patience=25),
)
WHOLE: Plan = (*OPENING, *CARRY, *CLOSING, rest(SHUT))


def ajar(push: float) -> Plan:
    """The drawer pushed by `push` m from 7.5 cm before its knob, and left like that."""
    return (*CLOSING[:-1], Waypoint(moved(x=push), SHUT, tolerance=0.01, patience=25))


@register
class CubeInDrawer(CabinetTask):
    """Open the drawer, pick the named cube, place it inside, close the drawer."""

    name = "cube_in_drawer"
    steps: ClassVar[tuple[str, ...]] = ("open", "pick", "place", "close")
    max_episode_steps = 180
    templates: ClassVar[tuple[str, ...]] = (
        "put the {colour} cube into the drawer and close it",
        "store the {colour} cube in the drawer, then shut the drawer",
        "open the drawer, place the {colour} block inside and close the drawer",
        "tidy the {colour} cube away in the drawer",
    )

    def stage(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        cube, tool = now.object(), now.tool
        inside, opened = inside_tray(now), now.joints["drawer"] > 0.1
        held = holds(now, cube, WIDTH) & (cube[:, 2] > HALF + 0.02)
        reach = nearness(distance(tool, now.points["knob"]), distance(start.tool, start.points["knob"]))
        over = now.points["tray"] + np.array([0.0, 0.0, 0.06])
        stage = np.select([inside, opened & held, opened], [3, 2, 1], 0)
        share = np.select(
            [inside, opened & held, opened],
            [
                closed(now, SHUT_AT),
                1.0 - (distance(cube, over) - 0.03) / TRAVEL,
                1.0 - (distance(tool, cube) - 0.01) / TRAVEL,
            ],
            0.4 * reach + 0.6 * now.joints["drawer"] / 0.1,
        )
        return stage, np.clip(share, 0.0, 1.0)

    def success(self, now: SceneState) -> np.ndarray:
        return inside_tray(now) & (now.joints["drawer"] < SHUT_AT)

    def named_bodies(self, layout: Layout) -> tuple[str, ...]:
        return ("drawer", *super().named_bodies(layout))

    def expert(self) -> Plan:
        return WHOLE

    def failures(self) -> Mapping[str, tuple[Plan, ...]]:
        end = rest(OPEN)
        return {
            "stall": (
                *(stalled(WHOLE, n) for n in (3, 6, 8, 10, 13, 15)),
                *(stalled((*OPENING, *CARRY, *ajar(x)), len(WHOLE) - 1) for x in (0.08, 0.1, 0.12, 0.135)),
            ),
            "drop": (
                (*OPENING, *CARRY[:4], *DROP, end),
                *((*OPENING, *CARRY[:4], beside, *DROP, *CLOSING, end) for beside in BESIDE),
            ),
            "undo": (
                (*PULL, Waypoint(moved(x=0.19), SHUT, tolerance=0.015, patience=20), *RELEASE, end),
                (*OPENING, *CLOSING, rest(SHUT)),
            ),
            "wrong_object": (mistaken(WHOLE), LIFT),
            "miss": (
                *((*OPENING, *missed(CARRY[:4], x, y), *CARRY[4:], *CLOSING, end) for x, y in BESIDE_CUBE),
                *((*OPENING, *gripped(CARRY, grip), *CLOSING, end) for grip in (OPEN, SHUT)),
                *((*missed(PULL, -0.06, y), *RELEASE, *CARRY, *CLOSING, end) for y in (-0.05, 0.0, 0.05)),
            ),
        }
