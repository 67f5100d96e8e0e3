"""A low bowl: a floor and an octagonal rim."""

from dataclasses import dataclass

import mujoco
import numpy as np

from embodied_sim.props.prop import Fixture, Point, add_box

BOWL_RADIUS_M = 0.08
"""Distance from the center of the bowl to the middle of a side of its rim, m: an open hand fits inside."""
BOWL_FLOOR_Z_M = 0.006  # height of the floor of the bowl, m

_RIM_HALF_HEIGHT_M = 0.017
_WALL_HALF_THICKNESS_M = 0.004

_BOWL_RGBA = (0.66, 0.76, 0.82, 1.0)


@dataclass(frozen=True)
class Bowl(Fixture):
    """Bowl. Point: `bowl`, the center of its floor."""

    name = "bowl"
    nominal_xy = (0.56, 0.17)
    point_names = ("bowl",)

    def add(self, spec: mujoco.MjSpec) -> None:
        body, wall, rim, floor_z = self.add_body(spec), _WALL_HALF_THICKNESS_M, _RIM_HALF_HEIGHT_M, BOWL_FLOOR_Z_M / 2
        half_side = BOWL_RADIUS_M * np.tan(np.pi / 8)
        for angle in np.arange(8) * np.pi / 4:
            _add_rotated_box(body, angle, BOWL_RADIUS_M, rim, (wall, half_side + wall / 2, rim))
        # Four strips through the center, each as wide as a side, cover the octagon.
        for angle in np.arange(4) * np.pi / 4:
            _add_rotated_box(body, angle, 0.0, floor_z, (BOWL_RADIUS_M, half_side, floor_z))
        body.add_site(name="bowl", pos=(0, 0, BOWL_FLOOR_Z_M), size=(0.004, 0, 0), group=5)


def _add_rotated_box(body: mujoco.MjsBody, angle: float, distance: float, z: float, half_size: Point) -> None:
    """Add a box at `distance` m from the bowl's axis and height `z`, rotated by `angle` rad about the axis."""
    position = (distance * np.cos(angle), distance * np.sin(angle), z)
    add_box(body, position, half_size, _BOWL_RGBA, quat=(np.cos(angle / 2), 0, 0, np.sin(angle / 2)))
