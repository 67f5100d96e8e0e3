"""A peg that stands on its shaft: a thick part for the fingers, a thinner one for a hole."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco

from sim.props.base import PALETTE, Item

GRIP_HALF = 0.022
"""Half the width and half the height of the part that the fingers take, m."""
SHAFT_HALF = 0.015
"""Half the width of the shaft, m."""
SHAFT_LENGTH = 0.05
"""m."""
STANDING_Z = SHAFT_LENGTH + GRIP_HALF
"""Height of the middle of the grip when the peg stands on the table, m."""


@dataclass(frozen=True)
class Peg(Item):
    """An item whose place is the middle of its grip. Point: `tip`, the middle of the foot of its shaft."""

    @property
    def noun(self) -> str:
        return "peg"

    @property
    def tip(self) -> str:
        """Name of the point at the foot of the shaft."""
        return f"{self.name}_tip"

    @property
    def points(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.tip,)

    @property
    def painted(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.name, f"{self.name}_shaft")

    def add(self, spec: mujoco.MjSpec) -> None:
        body = spec.worldbody.add_body(name=self.name, pos=(0.45, 0, STANDING_Z))
        body.add_freejoint(name=self.name)
        grip, shaft = self.painted
        # Heavy below, so that it keeps standing when the fingers brush it.
        parts = (
            (grip, 0.0, (GRIP_HALF, GRIP_HALF, GRIP_HALF), 0.03),
            (shaft, SHAFT_LENGTH / 2 - STANDING_Z, (SHAFT_HALF, SHAFT_HALF, SHAFT_LENGTH / 2), 0.07),
        )
        for name, z, half, mass in parts:
            body.add_geom(
                name=name, type=mujoco.mjtGeom.mjGEOM_BOX, pos=(0, 0, z), size=half, mass=mass,
                rgba=PALETTE[self.colour or "red"], friction=(1, 0.005, 0.0001), condim=4, solref=(0.01, 1),
            )  # fmt: skip
        body.add_site(name=self.tip, pos=(0, 0, -STANDING_Z), size=(0.004, 0, 0), group=5)
