"""Put the named peg into the hole of the board."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sim.control import FloatArray
from sim.experts import (
    OPEN,
    SHUT,
    Plan,
    Target,
    Waypoint,
    gripped,
    missed,
    mistaken,
    moved,
    rest,
    stalled,
    stay,
    withdrawn,
)
from sim.props import Peg, Pegboard
from sim.props.peg import GRIP_HALF, STANDING_Z
from sim.props.pegboard import CLEARANCE
from sim.registry import register
from sim.state import SceneState
from sim.task import Task, closing, distance, holds, nearness
from sim.tasks.lift_cube import at_cube

DEPTH = 0.02
"""How deep the peg must be in the hole, m."""
GRIP_WIDTH = 2 * GRIP_HALF
PEGS = (Peg("peg_a"), Peg("peg_b"))
OVER = np.array([0.0, 0.0, 0.02])
"""From the hole to where the tip is carried, m."""
GAIN = 2.0
"""How much the expert overcorrects above the hole."""


def tip(state: SceneState) -> FloatArray:
    """Where the tip of the named peg is, [N, 3]."""
    tips = np.stack([state.points[peg.tip] for peg in PEGS], axis=1)
    return tips[np.arange(len(state)), state.order[:, 0]]


def in_hole(state: SceneState) -> FloatArray:
    """The tip of the named peg as seen from the hole, [N, 3]."""
    return tip(state) - state.points["hole"]


def lowered(depth: float, gain: float = 1.0) -> Target:
    """The tip of the named peg, wherever the fingers hold it, that deep in the hole; above it where negative, m.

    `gain`: by how much an error across the hole is overcorrected; the arm stops about 2 mm short of its command.
    """
    across = np.array([gain, gain, 1.0])
    return lambda state, _: state.tool - across * in_hole(state) - np.array([0.0, 0.0, depth])


def above_peg(state: SceneState, _: FloatArray) -> FloatArray:
    """8 cm above the grip of the named peg."""
    return state.object() + np.array([0.0, 0.0, 0.08])


PICK: Plan = (
    Waypoint(above_peg, OPEN, tolerance=0.02),
    Waypoint(at_cube, OPEN, tolerance=0.01, patience=15),
    Waypoint(stay, SHUT, hold=4),
)
CARRY: Plan = (
    Waypoint(moved(z=0.12), SHUT, tolerance=0.015),
    Waypoint(lowered(-0.075), SHUT, tolerance=0.01),
    Waypoint(lowered(-0.012, gain=GAIN), SHUT, tolerance=0.005, hold=1, patience=8),
)
INSERT: Plan = tuple(
    Waypoint(lowered(d, gain=GAIN), SHUT, tolerance=0.005, patience=20) for d in (-0.002, 0.006, 0.015, 0.024)
)
RELEASE: Plan = (Waypoint(stay, OPEN, hold=3), Waypoint(moved(z=0.08), OPEN, tolerance=0.02))
END = rest(OPEN)
WHOLE: Plan = (*PICK, *CARRY, *INSERT, *RELEASE, END)


def over_hole(height: float) -> Target:
    """The tool where it would be with a peg in the fingers, its tip `height` m above the hole."""
    return lambda state, _: state.points["hole"] + np.array([0.0, 0.0, height + STANDING_Z])


INSERT_BLIND: Plan = (
    CARRY[0],
    *(Waypoint(over_hole(height), SHUT, tolerance=0.01) for height in (0.06, 0.015, -0.024)),
    *RELEASE,
    END,
)
"""The carrying and inserting as somebody does it who does not see that there is no peg in the fingers."""


@register
class InsertPeg(Task):
    """Pick the named peg, carry it over the hole, push it in by 2 cm; 2 mm of clearance in all."""

    name = "insert_peg"
    props = (Pegboard(), *PEGS)
    watched = ("hole",)
    steps = ("reach", "grasp", "carry", "insert")
    max_episode_steps = 100
    templates = (
        "insert the {colour} {thing} into the hole",
        "put the {colour} {thing} into the board",
        "pick up the {colour} {thing} and push it into the hole of the board",
        "plug the {colour} {thing} into the board, leave the {other_colour} one",
    )
    paraphrases = (
        "place the {colour} {thing} in the hole",
        "push the {colour} {thing} into the hole",
        "fit the {colour} {thing} into the board",
        "slide the {colour} {thing} down into the hole",
        "the {colour} {thing} goes into the hole",
        "take the {colour} {thing} and insert it into the board",
        "stick the {colour} {thing} into the hole of the board",
        "put the {colour} {thing}, not the {other_colour} one, into the hole",
    )
    opposites = (
        "pull the {colour} {thing} out of the hole",
        "take the {colour} {thing} out of the board",
        "remove the {colour} {thing} from the hole of the board",
        "lift the {colour} {thing} out of the hole",
        "get the {colour} {thing} out of the board",
        "draw the {colour} {thing} out of the hole",
    )

    def extra(self, state: SceneState) -> tuple[FloatArray, ...]:
        """The tip of the named peg as seen from the hole."""
        return (in_hole(state),)

    def stage(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        offset, peg = in_hole(now), now.object()
        entering = (np.abs(offset[:, :2]) < 0.004).all(axis=1) & (offset[:, 2] < OVER[2])
        held = holds(now, peg, GRIP_WIDTH)
        at_hand = distance(now.tool, peg) < 0.025
        stage = np.select([entering, held, at_hand], [3, 2, 1], 0)
        reach = nearness(distance(now.tool, peg) - 0.02, distance(start.tool, start.object()) - 0.02)
        carry = nearness(distance(offset, OVER), distance(in_hole(start), OVER))
        insert = (OVER[2] - offset[:, 2]) / (OVER[2] + DEPTH)
        share = np.select([entering, held, at_hand], [insert, carry, closing(now.opening, GRIP_WIDTH)], reach)
        return stage, np.clip(share, 0.0, 1.0)

    def success(self, now: SceneState) -> np.ndarray:
        offset = in_hole(now)
        return (np.abs(offset[:, :2]) < 2 * CLEARANCE).all(axis=1) & (offset[:, 2] < -DEPTH)

    def expert(self) -> Plan:
        return WHOLE

    def afterwards(self) -> tuple[Plan, ...]:
        return withdrawn(OPEN)

    def failures(self) -> Mapping[str, tuple[Plan, ...]]:
        carried = (*PICK, *CARRY)
        part = tuple((*carried, *INSERT[:n]) for n in (1, 2, 3))
        out = (Waypoint(lowered(-0.05), SHUT, tolerance=0.01), rest(SHUT))
        beside = ((0.045, 0.0), (-0.045, 0.0), (0.0, 0.045), (0.0, -0.045), (-0.1, 0.0), (0.0, -0.1))
        return {
            "stall": (*(stalled(WHOLE, n) for n in (1, 2, 3, 4, 5, 6)), *(stalled(plan, len(plan)) for plan in part)),
            "drop": (
                (*PICK, CARRY[0], *RELEASE, END),
                *((*PICK, CARRY[0], *missed((CARRY[1],), x, y), *RELEASE, END) for x, y in beside),
            ),
            "undo": ((*carried, *INSERT, Waypoint(stay, SHUT, hold=6), *out), *((*plan, *out) for plan in part)),
            "wrong_object": (mistaken(WHOLE), *(mistaken((*plan, *RELEASE, END)) for plan in part[1:])),
            "miss": (
                *((*PICK, *missed((*CARRY, *INSERT), x, y), *RELEASE, END) for x, y in beside),
                *((*missed(PICK, x, y), *INSERT_BLIND) for x, y in ((0.05, 0.0), (-0.05, 0.0), (0.0, 0.075))),
                *(gripped((*PICK, *INSERT_BLIND), grip) for grip in (OPEN, SHUT)),
            ),
        }
