"""A low bowl: a floor and an octagonal rim."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from sim.props.base import Fixture

BOWL_RADIUS = 0.08
"""From the middle of the bowl to the middle of a side of its rim, m: an open hand fits between."""
BOWL_FLOOR = 0.006
"""Height of the floor of the bowl, m."""

_RIM = 0.017
_WALL = 0.004

_CLAY = (0.66, 0.76, 0.82, 1.0)


@dataclass(frozen=True)
class Bowl(Fixture):
    """Point: `bowl`, the middle of its floor."""

    name = "bowl"
    place = (0.56, 0.17)
    points = ("bowl",)

    def add(self, spec: mujoco.MjSpec) -> None:
        body = self.body(spec)
        half_side = BOWL_RADIUS * np.tan(np.pi / 8)
        for angle in np.arange(8) * np.pi / 4:
            _add_slab(body, angle, (BOWL_RADIUS, _RIM), (_WALL, half_side + _WALL / 2, _RIM))
        # Four strips through the middle, each as wide as a side, cover the octagon.
        for angle in np.arange(4) * np.pi / 4:
            _add_slab(body, angle, (0.0, BOWL_FLOOR / 2), (BOWL_RADIUS, half_side, BOWL_FLOOR / 2))
        body.add_site(name="bowl", pos=(0, 0, BOWL_FLOOR), size=(0.004, 0, 0), group=5)


def _add_slab(body: mujoco.MjsBody, angle: float, at: tuple[float, float], half: tuple[float, float, float]) -> None:
    """A box `at` (distance from the middle, height), turned by `angle` (rad) about the bowl's axis."""
    distance, height = at
    body.add_geom(
        type=mujoco.mjtGeom.mjGEOM_BOX, size=half, rgba=_CLAY, quat=(np.cos(angle / 2), 0, 0, np.sin(angle / 2)),
        pos=(distance * np.cos(angle), distance * np.sin(angle), height),
    )  # fmt: skip
