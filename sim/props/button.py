"""A push button on a box: its cap goes down under the hand and comes up again by itself."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco

from sim.props.base import PALETTE, Fixture, box

TRAVEL = 0.03
"""How far the cap can be pressed, m."""
REST_Z = 0.075
"""Height of the top of the cap when nobody presses it, m."""

_BASE = (0.045, 0.045, 0.015)
_CAP_HALF = 0.027
_GREY = (0.75, 0.75, 0.78, 1.0)


@dataclass(frozen=True)
class Button(Fixture):
    """Point: the button's own name, the top of the cap. Joint: the same name, m pressed. Body of the cap: `cap`."""

    name: str
    place: tuple[float, float]
    colour: str | None = None

    @property
    def noun(self) -> str:
        return "button"

    @property
    def cap(self) -> str:
        """Name of the body that moves."""
        return f"{self.name}_cap"

    @property
    def points(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.name,)

    @property
    def joints(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.name,)

    @property
    def painted(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.cap,)

    def add(self, spec: mujoco.MjSpec) -> None:
        base = self.body(spec)
        box(base, (0, 0, _BASE[2]), _BASE, _GREY)
        # From the top of the base to the top of the cap, and as deep again as it can be pressed.
        half = (REST_Z - 2 * _BASE[2]) / 2
        cap = base.add_body(name=self.cap, pos=(0, 0, REST_Z - half), gravcomp=1)
        cap.add_joint(
            name=self.name, type=mujoco.mjtJoint.mjJNT_SLIDE, axis=(0, 0, -1), range=(0, TRAVEL),
            stiffness=150.0, damping=3.0, armature=0.05,
        )  # fmt: skip
        cap.add_geom(
            name=self.cap, type=mujoco.mjtGeom.mjGEOM_BOX, size=(_CAP_HALF, _CAP_HALF, half), mass=0.05,
            rgba=PALETTE[self.colour or "red"],
        )  # fmt: skip
        cap.add_site(name=self.name, pos=(0, 0, half), size=(0.004, 0, 0), group=5)
