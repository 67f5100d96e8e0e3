"""Push the open drawer shut."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sim.control import FloatArray
from sim.experts import OPEN, SHUT, Plan, Target, Waypoint, missed, moved, rest, stalled
from sim.layout import Layout
from sim.props import Cabinet, Item
from sim.registry import register
from sim.state import SceneState
from sim.task import distance, nearness
from sim.tasks.common import CabinetTask
from sim.tasks.cube_in_drawer import before_knob, before_knob_high
from sim.tasks.lift_cube import LIFT, above_cube, at_cube
from sim.tasks.open_drawer import PULL

CLOSED = 0.01
"""How far out the drawer may be to count as closed, m."""
AHEAD = 0.032
"""From the knob's point to the front of the knob, m."""
TIP = 0.009
"""Half the thickness of the closed fingers along the push, m."""
LOW = 0.008
"""How far below the knob's middle the hand pushes, so that an unsteady one does not slide over the knob, m."""

APPROACH: Plan = (
    Waypoint(before_knob_high, SHUT, tolerance=0.03),
    Waypoint(before_knob, SHUT, tolerance=0.015),
)
END = rest(SHUT)


def out_by(out: float) -> Target:
    """The closed hand at the knob of a drawer that is `out` m out."""

    def goal(state: SceneState, _: FloatArray) -> FloatArray:
        touching = state.points["knob"] - np.array([AHEAD + TIP, 0.0, LOW])
        touching[:, 0] += state.joints["drawer"] - out
        return touching

    return goal


PUSH: Plan = (*APPROACH, Waypoint(out_by(-0.03), SHUT, patience=18))


def short_of(out: float) -> Plan:
    """The drawer pushed until it is about `out` m out, slowly at the end, so that it does not slide on by itself."""
    slower = (out + d for d in (0.05, 0.035, 0.02, 0.01, 0.0))
    return (*APPROACH, *(Waypoint(out_by(d), SHUT, tolerance=0.006, hold=1, patience=12) for d in slower))


@register
class CloseDrawer(CabinetTask):
    """Bring the closed hand before the knob of the open drawer, push the drawer in until it is less than 1 cm out."""

    name = "close_drawer"
    props = (Cabinet(out=(0.1, 0.15)), Item("red", "red"), Item("blue", "blue"))
    steps = ("reach", "push")
    max_episode_steps = 52
    templates = (
        "close the drawer",
        "push the drawer shut",
        "slide the drawer back into the cabinet",
        "push the green knob until the drawer is closed",
    )

    def stage(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        out, out_at_start = now.joints["drawer"], start.joints["drawer"]
        at, began = before_knob(now, now.tool), before_knob(start, start.tool)
        reach = nearness(distance(now.tool, at) - 0.02, distance(start.tool, began) - 0.02)
        pushed = out < out_at_start - 0.008
        return np.where(pushed, 1, 0), np.where(pushed, (out_at_start - out) / (out_at_start - CLOSED), reach)

    def success(self, now: SceneState) -> np.ndarray:
        return now.joints["drawer"] < CLOSED

    def named_bodies(self, layout: Layout) -> tuple[str, ...]:
        return ("drawer",)

    def expert(self) -> Plan:
        return (*PUSH, END)

    def failures(self) -> Mapping[str, tuple[Plan, ...]]:
        half = tuple(short_of(out) for out in (0.02, 0.03, 0.05, 0.08))
        leave = (Waypoint(moved(x=-0.08), SHUT, tolerance=0.02, patience=15), Waypoint(moved(z=0.12), SHUT))
        brisk = tuple(
            (*APPROACH, Waypoint(out_by(out), SHUT, tolerance=0.02, patience=11)) for out in (-0.03, 0.05, 0.08)
        )
        reopen = (Waypoint(moved(z=0.1), OPEN, tolerance=0.03), *PULL, rest(OPEN))
        beside_cube = missed((Waypoint(above_cube, SHUT, tolerance=0.02), Waypoint(at_cube, SHUT)), x=-0.07)
        return {
            "stall": (*(stalled(PUSH, n) for n in (1, 2)), *(stalled(plan, len(plan)) for plan in half)),
            "drop": tuple((*plan, *leave, END) for plan in half),
            "undo": tuple((*plan, *reopen) for plan in brisk),
            "wrong_object": (LIFT, (*beside_cube, Waypoint(moved(x=0.15), SHUT), END)),
            "miss": (
                *(missed(PUSH, z=z) for z in (0.055, 0.075)),
                *(missed(PUSH, y=y) for y in (-0.17, -0.14)),
                *(missed((*APPROACH, Waypoint(moved(x=x), SHUT, patience=25), END), x=-0.02) for x in (0.0, 0.02)),
                (*APPROACH, Waypoint(moved(y=-0.16), SHUT), Waypoint(moved(x=0.2), SHUT, patience=25), END),
            ),
        }
