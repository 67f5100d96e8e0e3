"""Base classes of props: name, body in the scene, and the points and joints that the state reads."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import mujoco

from embodied_sim.palette import PALETTE, Color

Point = tuple[float, float, float]
Shape = Literal["cube", "cylinder"]

ITEM_HALF_SIZE_M = 0.025  # half width and half height of an item, m


class Prop(ABC):
    """Object on the table. Its body is called `name`."""

    name: str
    point_names: tuple[str, ...] = ()  # sites that the state reads
    joint_names: tuple[str, ...] = ()  # joints that the state reads
    mirrored_joint_names: tuple[str, ...] = ()  # those whose sign the mirror image, left for right, changes
    color: str | None = None  # name in `PALETTE`; None: drawn per episode, if the prop is one of the task's objects
    colored_geoms: tuple[str, ...] = ()  # geoms in the prop's color

    @property
    def noun(self) -> str:
        """Return the noun that instructions use."""
        return self.name

    @abstractmethod
    def add(self, spec: mujoco.MjSpec) -> None:
        """Add the prop to the scene, which already has the table."""


@dataclass(frozen=True)
class Item(Prop):
    """Object of 5 cm that can be picked up."""

    name: str
    color: str | None = None
    shape: Shape = "cube"

    @property
    def noun(self) -> str:
        return self.shape

    @property
    def colored_geoms(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.name,)

    def add(self, spec: mujoco.MjSpec) -> None:
        geom_types = {"cube": mujoco.mjtGeom.mjGEOM_BOX, "cylinder": mujoco.mjtGeom.mjGEOM_CYLINDER}
        body = spec.worldbody.add_body(name=self.name, pos=(0.45, 0, ITEM_HALF_SIZE_M))
        body.add_freejoint(name=self.name)
        body.add_geom(
            name=self.name, type=geom_types[self.shape], size=(ITEM_HALF_SIZE_M,) * 3,
            rgba=PALETTE[self.color or "red"], mass=0.08, friction=(1, 0.005, 0.0001), condim=4, solref=(0.01, 1),
        )  # fmt: skip


class Fixture(Prop):
    """Object that does not move during an episode: a mocap body, so that its pose can differ between worlds."""

    nominal_xy: tuple[float, float]  # nominal x, y of its center on the table, m
    joint_start_ranges: Mapping[str, tuple[float, float]] = MappingProxyType({})
    """Joint -> range of its start position, m or rad."""

    def add_body(self, spec: mujoco.MjSpec) -> mujoco.MjsBody:
        """Add an empty body and return it."""
        return spec.worldbody.add_body(name=self.name, pos=(*self.nominal_xy, 0), mocap=True)


def add_box(body: mujoco.MjsBody, pos: Point, half_size: Point, rgba: Color, **kwargs: object) -> None:
    """Add a box with half sizes `half_size`, m."""
    body.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, pos=pos, size=half_size, rgba=rgba, **kwargs)
