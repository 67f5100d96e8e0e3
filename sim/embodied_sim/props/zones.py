"""Two flat zones, left and right of the robot (left is y > 0), and the items that are pushed into them."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco

from embodied_sim.props.prop import Fixture, Item, add_box

ZONE_HALF_WIDTH_M = 0.06  # half width of a zone, m
ZONE_OFFSET_Y_M = 0.12  # distance along y from the center between the zones to the center of each, m

_ZONE_HALF_SIZE_M = (ZONE_HALF_WIDTH_M, ZONE_HALF_WIDTH_M, 0.001)
_ZONE_RGBA = (0.8, 0.78, 0.72, 1.0)
_SLIDER_FRICTION = (0.5, 0.005, 0.002)
"""Friction of a slider, whatever it stands on: with the table's friction it would tip over instead of sliding."""


@dataclass(frozen=True)
class Zones(Fixture):
    """Zones. Points: `left_zone` and `right_zone`, their centers. They have no collisions: objects slide over them."""

    name = "zones"
    nominal_xy = (0.66, -0.03)
    point_names = ("left_zone", "right_zone")

    def add(self, spec: mujoco.MjSpec) -> None:
        body = self.add_body(spec)
        for name, y in zip(self.point_names, (ZONE_OFFSET_Y_M, -ZONE_OFFSET_Y_M), strict=True):
            position = (0, y, _ZONE_HALF_SIZE_M[2])
            add_box(body, position, _ZONE_HALF_SIZE_M, _ZONE_RGBA, contype=0, conaffinity=0)
            body.add_site(name=name, pos=(0, y, 0), size=(0.004, 0, 0), group=5)


@dataclass(frozen=True)
class Slider(Item):
    """Item that slides easily and stops rolling when it lies on its side."""

    def add(self, spec: mujoco.MjSpec) -> None:
        super().add(spec)
        geom = spec.geom(self.name)
        geom.friction, geom.priority, geom.condim = _SLIDER_FRICTION, 1, 6
