"""A cabinet with one drawer that opens towards the robot."""

from collections.abc import Mapping
from dataclasses import dataclass

import mujoco

from embodied_sim.props.prop import Fixture, add_box

DRAWER_TRAVEL_M = 0.16  # travel of the drawer, m

_CABINET_HALF_SIZE_M = (0.1, 0.1, 0.05)
_WALL_HALF_THICKNESS_M = 0.004
_KNOB_Z_M = 0.075

_WOOD_RGBA = (0.62, 0.45, 0.28, 1.0)
_TRAY_RGBA = (0.93, 0.84, 0.66, 1.0)
_KNOB_RGBA = (0.1, 0.6, 0.3, 1.0)


@dataclass(frozen=True)
class Cabinet(Fixture):
    """Cabinet. Points: `knob`, the grasp point, and `tray`, the center of the tray. Joint: `drawer`, m; 0 is closed."""

    name = "cabinet"
    nominal_xy = (0.69, 0.2)
    point_names = ("knob", "tray")
    joint_names = ("drawer",)
    drawer_start_range: tuple[float, float] = (0.0, 0.008)  # range of the drawer's opening at the start, m

    @property
    def joint_start_ranges(self) -> Mapping[str, tuple[float, float]]:  # type: ignore[override]
        return {"drawer": self.drawer_start_range}

    def add(self, spec: mujoco.MjSpec) -> None:
        hx, hy, hz = _CABINET_HALF_SIZE_M
        cabinet = self.add_body(spec)
        for y in (-hy, hy):
            add_box(cabinet, (0, y, hz), (hx, _WALL_HALF_THICKNESS_M, hz), _WOOD_RGBA)
        add_box(cabinet, (hx, 0, hz), (_WALL_HALF_THICKNESS_M, hy, hz), _WOOD_RGBA)
        add_box(cabinet, (0, 0, 2 * hz), (hx, hy + _WALL_HALF_THICKNESS_M, _WALL_HALF_THICKNESS_M), _WOOD_RGBA)
        drawer = cabinet.add_body(name="drawer")
        drawer.add_joint(
            name="drawer", type=mujoco.mjtJoint.mjJNT_SLIDE, axis=(-1, 0, 0), range=(0, DRAWER_TRAVEL_M),
            damping=4.0, frictionloss=1.5, armature=0.1,
        )  # fmt: skip
        _add_tray(drawer)


def _add_tray(drawer: mujoco.MjsBody) -> None:
    hx, hy, _ = _CABINET_HALF_SIZE_M
    wall, depth, width, height = _WALL_HALF_THICKNESS_M, hx - 0.008, hy - 0.012, 0.04
    add_box(drawer, (0, 0, 0.01), (depth, width, wall), _TRAY_RGBA, mass=0.3)
    for y in (-width, width):
        add_box(drawer, (0, y, height), (depth, wall, height - 0.01), _TRAY_RGBA, mass=0.05)
    add_box(drawer, (depth, 0, height), (wall, width, height - 0.01), _TRAY_RGBA, mass=0.05)
    front = -hx - wall
    add_box(drawer, (front, 0, 0.046), (wall, hy - 0.002, 0.044), _WOOD_RGBA, mass=0.1)
    # A T-shaped knob: the fingers close on its neck, and its cap prevents slipping.
    neck = front - 0.024
    add_box(drawer, (neck, 0, _KNOB_Z_M), (0.022, 0.008, 0.012), _KNOB_RGBA, mass=0.02)
    add_box(drawer, (front - 0.05, 0, _KNOB_Z_M), (0.005, 0.028, 0.014), _KNOB_RGBA, mass=0.02)
    drawer.add_site(name="knob", pos=(neck + 0.001, 0, _KNOB_Z_M), size=(0.004, 0, 0), group=5)
    drawer.add_site(name="tray", pos=(0, 0, 0.03), size=(0.004, 0, 0), group=5)
