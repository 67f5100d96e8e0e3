"""A peg that stands on its shaft, with a thick grip for the fingers, and a board with a square hole for it."""

from dataclasses import dataclass

import mujoco
import numpy as np

from embodied_sim.props.prop import PALETTE, Fixture, Item, add_box

PEG_GRIP_HALF_SIZE_M = 0.022  # half width and half height of the grip, m
PEG_SHAFT_HALF_WIDTH_M = 0.015  # half width of the shaft, m
PEG_SHAFT_LENGTH_M = 0.05  # length of the shaft, m
PEG_STANDING_Z_M = PEG_SHAFT_LENGTH_M + PEG_GRIP_HALF_SIZE_M
"""Height of the center of the grip when the peg stands on the table, m."""
HOLE_CLEARANCE_M = 0.002  # difference of the widths of the hole and of the shaft of a peg, m
BOARD_THICKNESS_M = 0.036  # thickness of the board, m; the hole reaches the table

_BOARD_HALF_WIDTH_M = 0.065
_FUNNEL_SIZE_M = (0.0055, 0.003)  # half length along the slope of the funnel and half thickness of its sides, m
_MATERIAL = {"priority": 1, "friction": (0.3, 0.005, 0.0001)}  # low friction, whatever the board touches
_FUNNEL_RGBA = (0.75, 0.6, 0.4, 1.0)
_WOOD_RGBA = (0.93, 0.84, 0.66, 1.0)


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


@dataclass(frozen=True)
class Pegboard(Fixture):
    """Board with a hole and a funnel above it. Point: `hole`, the center of the hole's upper rim."""

    name = "pegboard"
    nominal_xy = (0.58, 0.16)
    point_names = ("hole",)

    def add(self, spec: mujoco.MjSpec) -> None:
        board = self.add_body(spec)
        hole = PEG_SHAFT_HALF_WIDTH_M + HOLE_CLEARANCE_M / 2
        rim, z = (_BOARD_HALF_WIDTH_M - hole) / 2, BOARD_THICKNESS_M / 2
        for sign in (-1, 1):
            center = sign * (hole + rim)
            add_box(board, (center, 0, z), (rim, _BOARD_HALF_WIDTH_M, z), _WOOD_RGBA, **_MATERIAL)
            add_box(board, (0, center, z), (hole, rim, z), _WOOD_RGBA, **_MATERIAL)
            _add_slope(board, sign)
        board.add_site(name="hole", pos=(0, 0, BOARD_THICKNESS_M), size=(0.004, 0, 0), group=5)


def _add_slope(board: mujoco.MjsBody, sign: int) -> None:
    """Add two opposite sides of the funnel, at 45 degrees, with their lower inner edges on the rim of the hole."""
    length, thickness = _FUNNEL_SIZE_M
    edge = PEG_SHAFT_HALF_WIDTH_M + HOLE_CLEARANCE_M / 2
    # From the lower inner edge up the slope, then into the board.
    outward, upward = (length + thickness) / np.sqrt(2), (length - thickness) / np.sqrt(2)
    half_width = edge + np.sqrt(2) * length
    angle = sign * np.pi / 4
    cos, sin = np.cos(angle / 2), np.sin(angle / 2)
    offset, z = sign * (edge + outward), BOARD_THICKNESS_M + upward
    x_quat, y_quat = (cos, 0, -sin, 0), (cos, sin, 0, 0)
    add_box(board, (offset, 0, z), (length, half_width, thickness), _FUNNEL_RGBA, quat=x_quat, **_MATERIAL)
    add_box(board, (0, offset, z), (half_width, length, thickness), _FUNNEL_RGBA, quat=y_quat, **_MATERIAL)
