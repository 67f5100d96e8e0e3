"""A board with a square hole for a peg."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from sim.props.base import Fixture, box
from sim.props.peg import SHAFT_HALF

CLEARANCE = 0.002
"""By how much the hole is wider than the shaft of a peg, m."""
THICKNESS = 0.036
"""m; the hole goes through to the table."""

_HALF = 0.065
_SLOPE = (0.0055, 0.003)
"""Half the length down the funnel and half the thickness of its sides, m."""
_SMOOTH = (0.3, 0.005, 0.0001)
_RIM = (0.75, 0.6, 0.4, 1.0)
_WOOD = (0.93, 0.84, 0.66, 1.0)


@dataclass(frozen=True)
class Pegboard(Fixture):
    """Point: `hole`, the middle of its upper rim, at the foot of a funnel that leads a peg there."""

    name = "pegboard"
    place = (0.58, 0.16)
    points = ("hole",)

    def add(self, spec: mujoco.MjSpec) -> None:
        board = self.body(spec)
        hole = SHAFT_HALF + CLEARANCE / 2
        rim, z = (_HALF - hole) / 2, THICKNESS / 2
        for sign in (-1, 1):
            middle = sign * (hole + rim)
            box(board, (middle, 0, z), (rim, _HALF, z), _WOOD, priority=1, friction=_SMOOTH)
            box(board, (0, middle, z), (hole, rim, z), _WOOD, priority=1, friction=_SMOOTH)
            _add_slope(board, sign)
        board.add_site(name="hole", pos=(0, 0, THICKNESS), size=(0.004, 0, 0), group=5)


def _add_slope(board: mujoco.MjsBody, sign: int) -> None:
    """Two opposite sides of the funnel, at 45 degrees, their lower inner edges on the rim of the hole."""
    length, thick = _SLOPE
    edge = SHAFT_HALF + CLEARANCE / 2
    # From the lower inner edge up the slope, then into the wood.
    out, up = (length + thick) / np.sqrt(2), (length - thick) / np.sqrt(2)
    wide = edge + np.sqrt(2) * length
    turn = sign * np.pi / 4
    box(board, (sign * (edge + out), 0, THICKNESS + up), (length, wide, thick), _RIM,
        quat=(np.cos(turn / 2), 0, -np.sin(turn / 2), 0), priority=1, friction=_SMOOTH)  # fmt: skip
    box(board, (0, sign * (edge + out), THICKNESS + up), (wide, length, thick), _RIM,
        quat=(np.cos(turn / 2), np.sin(turn / 2), 0, 0), priority=1, friction=_SMOOTH)  # fmt: skip
