"""A peg that stands on its shaft: a thick grip for the fingers and a thinner shaft for a hole."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco

from embodied_sim.palette import PALETTE
from embodied_sim.props.prop import Item

PEG_GRIP_HALF_SIZE_M = 0.022  # half width and half height of the grip, m
PEG_SHAFT_HALF_WIDTH_M = 0.015  # half width of the shaft, m
PEG_SHAFT_LENGTH_M = 0.05  # length of the shaft, m
PEG_STANDING_Z_M = PEG_SHAFT_LENGTH_M + PEG_GRIP_HALF_SIZE_M
"""Height of the center of the grip when the peg stands on the table, m."""


@dataclass(frozen=True)
class Peg(Item):
    """Item whose position is the center of its grip. Point: `<name>_tip`, the lower end of its shaft."""

    noun = "peg"

    @property
    def point_names(self) -> tuple[str, ...]:  # type: ignore[override]
        return (f"{self.name}_tip",)

    @property
    def colored_geoms(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.name, f"{self.name}_shaft")

    def add(self, spec: mujoco.MjSpec) -> None:
        body = spec.worldbody.add_body(name=self.name, pos=(0.45, 0, PEG_STANDING_Z_M))
        body.add_freejoint(name=self.name)
        grip, shaft = self.colored_geoms
        grip_size, width, length = PEG_GRIP_HALF_SIZE_M, PEG_SHAFT_HALF_WIDTH_M, PEG_SHAFT_LENGTH_M / 2
        # The shaft is heavier, so that the peg keeps standing when the fingers touch it.
        parts = (
            (grip, 0.0, (grip_size, grip_size, grip_size), 0.03),
            (shaft, length - PEG_STANDING_Z_M, (width, width, length), 0.07),
        )
        for name, z, half_size, mass in parts:
            body.add_geom(
                name=name, type=mujoco.mjtGeom.mjGEOM_BOX, pos=(0, 0, z), size=half_size, mass=mass,
                rgba=PALETTE[self.color or "red"], friction=(1, 0.005, 0.0001), condim=4, solref=(0.01, 1),
            )  # fmt: skip
        body.add_site(name=self.point_names[0], pos=(0, 0, -PEG_STANDING_Z_M), size=(0.004, 0, 0), group=5)
