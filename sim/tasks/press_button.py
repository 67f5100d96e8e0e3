"""Press the named button and keep it down."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sim.control import FloatArray
from sim.experts import FOR_EVER, OPEN, SHUT, Plan, Target, Waypoint, gripped, missed, mistaken, moved, rest, stalled
from sim.layout import Layout
from sim.props import Button
from sim.props.button import REST_Z
from sim.registry import register
from sim.state import SceneState
from sim.task import Task, distance, nearness

PRESSED = 0.018
"""How far down the cap must be to count as pressed, m."""
TIP = 0.009
"""How far below the tool the ends of the fingers are, m."""


def depth(state: SceneState) -> FloatArray:
    """How far the named button is pressed [N], m."""
    return REST_Z - state.object()[:, 2]


def over(pressed: float) -> Target:
    """The ends of the fingers where the top of the named button is when it is pressed by that much, m."""

    def goal(state: SceneState, _: FloatArray) -> FloatArray:
        top = state.object()
        return np.column_stack([top[:, :2], np.full(len(top), REST_Z + TIP - pressed)])

    return goal


ABOVE: Plan = (Waypoint(over(-0.08), SHUT, tolerance=0.02), Waypoint(over(-0.015), SHUT, tolerance=0.008))
END = rest(SHUT)


def pressed(by: float, hold: int = 0) -> Plan:
    """The named button pressed by that much, m."""
    return (*ABOVE, Waypoint(over(by), SHUT, tolerance=0.004, hold=hold, patience=12))


PRESS: Plan = (*pressed(0.04), Waypoint(over(0.04), SHUT, hold=FOR_EVER))


@register
class PressButton(Task):
    """Bring the closed hand over the named button, press it by 1.8 of its 3 cm and keep it down."""

    name = "press_button"
    props = (Button("near_button", (0.47, 0.0)), Button("far_button", (0.56, 0.2)))
    steps = ("reach", "press")
    max_episode_steps = 40
    templates = (
        "press the {colour} {thing}",
        "push the {colour} {thing} down and keep it down",
        "hold the {colour} {thing} down",
        "press down the {colour} {thing}, not the {other_colour} one",
    )
    paraphrases = (
        "push the {colour} {thing}",
        "push down the {colour} {thing}",
        "keep the {colour} {thing} pressed",
        "press and hold the {colour} {thing}",
        "activate the {colour} {thing}",
        "go to the {colour} {thing} and press it",
        "hit the {colour} {thing}",
        "depress the {colour} {thing}",
    )

    @property
    def objects(self) -> tuple[str, ...]:
        return tuple(prop.name for prop in self.fixtures)

    def extra(self, state: SceneState) -> tuple[FloatArray, ...]:
        """How far the named button is pressed."""
        return (depth(state)[:, None],)

    def stage(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        place = np.array([0.0, 0.0, TIP])
        reach = nearness(
            distance(now.tool, now.object() + place) - 0.01, distance(start.tool, start.object() + place) - 0.01
        )
        down = depth(now) > 0.002
        return np.where(down, 1, 0), np.where(down, depth(now) / PRESSED, reach)

    def success(self, now: SceneState) -> np.ndarray:
        return depth(now) > PRESSED

    def named_bodies(self, layout: Layout) -> tuple[str, ...]:
        return (f"{super().named_bodies(layout)[0]}_cap",)

    def expert(self) -> Plan:
        return PRESS

    def failures(self) -> Mapping[str, tuple[Plan, ...]]:
        slip = tuple(Waypoint(moved(x, y), SHUT, tolerance=0.02) for x, y in ((-0.07, 0.0), (0.0, 0.07), (0.0, -0.07)))
        leave = (Waypoint(moved(z=0.08), SHUT, tolerance=0.02), END)
        part = (0.005, 0.009, 0.013)
        beside = ((-0.065, 0.0), (0.065, 0.0), (0.0, 0.075), (0.0, -0.075))
        return {
            "stall": (*(stalled(PRESS, n) for n in (1, 2)), *(stalled(pressed(by), 3) for by in part)),
            "drop": tuple((*pressed(by), aside, *leave) for by in part for aside in slip),
            "undo": (*((*pressed(by), *leave) for by in (*part, 0.04)), (*pressed(0.04, hold=6), *leave)),
            "wrong_object": (mistaken(PRESS), *((*mistaken(pressed(by)), END) for by in part)),
            "miss": (
                *(missed(PRESS, x, y) for x, y in beside),
                *(missed(PRESS, z=z) for z in (0.036, 0.05)),
                gripped(PRESS, OPEN),
            ),
        }
