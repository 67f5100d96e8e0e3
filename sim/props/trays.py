"""Two trays with a low rim, left and right as the robot sees them (left is y > 0)."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco

from sim.props.base import Fixture, box

TRAY_HALF = (0.07, 0.085)
"""Half the depth (x) and half the width (y) of a tray, m: an open hand fits between the rims."""
TRAY_FLOOR = 0.006
"""Height of the floor of a tray, m."""

_ACROSS = 0.14
_RIM = 0.012
_WALL = 0.004

_CARD = (0.74, 0.62, 0.62, 1.0)


@dataclass(frozen=True)
class Trays(Fixture):
    """Points: `left_tray` and `right_tray`, the middles of their floors."""

    name = "trays"
    place = (0.67, 0.0)
    points = ("left_tray", "right_tray")

    def add(self, spec: mujoco.MjSpec) -> None:
        body = self.body(spec)
        for name, y in zip(self.points, (_ACROSS, -_ACROSS), strict=True):
            _add_tray(body, y)
            body.add_site(name=name, pos=(0, y, TRAY_FLOOR), size=(0.004, 0, 0), group=5)


def _add_tray(body: mujoco.MjsBody, y: float) -> None:
    hx, hy = TRAY_HALF
    box(body, (0, y, TRAY_FLOOR / 2), (hx, hy, TRAY_FLOOR / 2), _CARD)
    for side in (-1, 1):
        box(body, (0, y + side * hy, _RIM), (hx + _WALL, _WALL, _RIM), _CARD)
        box(body, (side * hx, y, _RIM), (_WALL, hy, _RIM), _CARD)
