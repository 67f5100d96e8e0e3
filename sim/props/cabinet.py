"""A cabinet with one drawer that opens towards the robot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import mujoco

from sim.props.base import Fixture, box

TRAVEL = 0.16
"""How far the drawer slides out, m."""

_HALF = (0.1, 0.1, 0.05)
_WALL = 0.004
_KNOB_Z = 0.075

_WOOD = (0.62, 0.45, 0.28, 1.0)
_TRAY = (0.93, 0.84, 0.66, 1.0)
_KNOB = (0.1, 0.6, 0.3, 1.0)


@dataclass(frozen=True)
class Cabinet(Fixture):
    """Points: `knob`, where the fingers hold it, and `tray`, the middle of the tray. Joint: `drawer`, m out."""

    name = "cabinet"
    place = (0.69, 0.2)
    points = ("knob", "tray")
    joints = ("drawer",)
    out: tuple[float, float] = (0.0, 0.008)
    """How far the drawer may be out at the start, m."""

    @property
    def starts(self) -> Mapping[str, tuple[float, float]]:  # type: ignore[override]
        return {"drawer": self.out}

    def add(self, spec: mujoco.MjSpec) -> None:
        hx, hy, hz = _HALF
        cabinet = self.body(spec)
        for y in (-hy, hy):
            box(cabinet, (0, y, hz), (hx, _WALL, hz), _WOOD)
        box(cabinet, (hx, 0, hz), (_WALL, hy, hz), _WOOD)
        box(cabinet, (0, 0, 2 * hz), (hx, hy + _WALL, _WALL), _WOOD)
        drawer = cabinet.add_body(name="drawer")
        drawer.add_joint(
            name="drawer", type=mujoco.mjtJoint.mjJNT_SLIDE, axis=(-1, 0, 0), range=(0, TRAVEL),
            damping=4.0, frictionloss=1.5, armature=0.1,
        )  # fmt: skip
        _add_tray(drawer)


def _add_tray(drawer: mujoco.MjsBody) -> None:
    hx, hy, _ = _HALF
    w, depth, width, height = _WALL, hx - 0.008, hy - 0.012, 0.04
    box(drawer, (0, 0, 0.01), (depth, width, w), _TRAY, mass=0.3)
    for y in (-width, width):
        box(drawer, (0, y, height), (depth, w, height - 0.01), _TRAY, mass=0.05)
    box(drawer, (depth, 0, height), (w, width, height - 0.01), _TRAY, mass=0.05)
    front = -hx - w
    box(drawer, (front, 0, 0.046), (w, hy - 0.002, 0.044), _WOOD, mass=0.1)
    # A T-shaped knob: the fingers close on the neck, the cap keeps them from slipping off.
    neck = front - 0.024
    box(drawer, (neck, 0, _KNOB_Z), (0.022, 0.008, 0.012), _KNOB, mass=0.02)
    box(drawer, (front - 0.05, 0, _KNOB_Z), (0.005, 0.028, 0.014), _KNOB, mass=0.02)
    drawer.add_site(name="knob", pos=(neck + 0.001, 0, _KNOB_Z), size=(0.004, 0, 0), group=5)
    drawer.add_site(name="tray", pos=(0, 0, 0.03), size=(0.004, 0, 0), group=5)
