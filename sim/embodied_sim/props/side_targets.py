"""Trays and zones, left and right of the robot (left is y > 0), and the items that are pushed into zones."""

from dataclasses import dataclass

import mujoco

from embodied_sim.props.prop import Fixture, Item, add_box

TRAY_HALF_SIZE_M = (0.07, 0.085)  # half depth (x) and half width (y) of a tray, m: an open hand fits between the rims
TRAY_FLOOR_Z_M = 0.006  # height of the floor of a tray, m

_TRAY_OFFSET_Y_M = 0.14
_RIM_HALF_HEIGHT_M = 0.012
_WALL_HALF_THICKNESS_M = 0.004

_TRAY_RGBA = (0.74, 0.62, 0.62, 1.0)

ZONE_HALF_WIDTH_M = 0.06  # half width of a zone, m
ZONE_OFFSET_Y_M = 0.12  # distance along y from the center between the zones to the center of each, m

_ZONE_HALF_SIZE_M = (ZONE_HALF_WIDTH_M, ZONE_HALF_WIDTH_M, 0.001)
_ZONE_RGBA = (0.8, 0.78, 0.72, 1.0)
_SLIDER_FRICTION = (0.5, 0.005, 0.002)
"""Friction of a slider, whatever it stands on: with the table's friction it would tip over instead of sliding."""


@dataclass(frozen=True)
class Trays(Fixture):
    """Trays. Points: `left_tray` and `right_tray`, the centers of their floors."""

    name = "trays"
    nominal_xy = (0.67, 0.0)
    point_names = ("left_tray", "right_tray")

    def add(self, spec: mujoco.MjSpec) -> None:
        body = self.add_body(spec)
        for name, y in zip(self.point_names, (_TRAY_OFFSET_Y_M, -_TRAY_OFFSET_Y_M), strict=True):
            _add_tray(body, y)
            body.add_site(name=name, pos=(0, y, TRAY_FLOOR_Z_M), size=(0.004, 0, 0), group=5)


def _add_tray(body: mujoco.MjsBody, y: float) -> None:
    (hx, hy), wall, rim = TRAY_HALF_SIZE_M, _WALL_HALF_THICKNESS_M, _RIM_HALF_HEIGHT_M
    add_box(body, (0, y, TRAY_FLOOR_Z_M / 2), (hx, hy, TRAY_FLOOR_Z_M / 2), _TRAY_RGBA)
    for side in (-1, 1):
        add_box(body, (0, y + side * hy, rim), (hx + wall, wall, rim), _TRAY_RGBA)
        add_box(body, (side * hx, y, rim), (wall, hy, rim), _TRAY_RGBA)


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
