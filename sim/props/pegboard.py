"""A board with a square hole for a peg."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco

from sim.props.base import Fixture, box
from sim.props.peg import SHAFT_HALF

CLEARANCE = 0.002
"""By how much the hole is wider than the shaft of a peg, m."""
THICKNESS = 0.036
"""m; the hole goes through to the table."""

_HALF = 0.065
_WOOD = (0.93, 0.84, 0.66, 1.0)


@dataclass(frozen=True)
class Pegboard(Fixture):
    """Point: `hole`, the middle of its upper rim."""

    name = "pegboard"
    place = (0.58, 0.16)
    points = ("hole",)

    def add(self, spec: mujoco.MjSpec) -> None:
        board = self.body(spec)
        hole = SHAFT_HALF + CLEARANCE / 2
        rim, z = (_HALF - hole) / 2, THICKNESS / 2
        for sign in (-1, 1):
            middle = sign * (hole + rim)
            box(board, (middle, 0, z), (rim, _HALF, z), _WOOD, friction=(0.3, 0.005, 0.0001))
            box(board, (0, middle, z), (hole, rim, z), _WOOD, friction=(0.3, 0.005, 0.0001))
        board.add_site(name="hole", pos=(0, 0, THICKNESS), size=(0.004, 0, 0), group=5)
