"""Two flat zones, left and right as the robot sees them (left is y > 0)."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco

from sim.props.base import Fixture, box

ZONE_HALF = 0.06
"""Half the width of a zone, m."""
ZONE_ACROSS = 0.12
"""From the middle between the zones to the middle of each, along y, m."""

_THICK = 0.001

_PAINT = (0.8, 0.78, 0.72, 1.0)


@dataclass(frozen=True)
class Zones(Fixture):
    """Points: `left_zone` and `right_zone`, their middles on the table. They are paint: things slide over them."""

    name = "zones"
    place = (0.66, -0.03)
    points = ("left_zone", "right_zone")

    def add(self, spec: mujoco.MjSpec) -> None:
        body = self.body(spec)
        for name, y in zip(self.points, (ZONE_ACROSS, -ZONE_ACROSS), strict=True):
            box(body, (0, y, _THICK), (ZONE_HALF, ZONE_HALF, _THICK), _PAINT, contype=0, conaffinity=0)
            body.add_site(name=name, pos=(0, y, 0), size=(0.004, 0, 0), group=5)
