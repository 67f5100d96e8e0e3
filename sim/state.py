"""What a task may know of its worlds: where tool, objects, named places and joints are; one row a world."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.arm import Arm
from sim.control import FloatArray
from sim.props import Item, Prop


@dataclass(frozen=True)
class SceneState:
    """A snapshot of N worlds; every array owns its memory."""

    tool: FloatArray
    """[N, 3]: tool position, m."""
    commanded: FloatArray
    """[N, 3]: commanded tool position, m."""
    opening: FloatArray
    """[N]: distance between the finger pads, m."""
    objects: FloatArray
    """[N, C, 3]: where the task's objects are, m."""
    points: Mapping[str, FloatArray]
    """Name -> [N, 3]: places of the props, m."""
    joints: Mapping[str, FloatArray]
    """Name -> [N]: joints of the props, m or rad."""
    order: npt.NDArray[np.int64]
    """[N, C]: index of the object in each role; role 0 is what the instruction names."""
    side: npt.NDArray[np.int64]
    """[N]: which of the task's sides is meant."""

    def __len__(self) -> int:
        return len(self.tool)

    def object(self, role: int = 0) -> FloatArray:
        """[N, 3]: where the object in that role is, m; by default the one that the instruction names."""
        return self.objects[np.arange(len(self)), self.order[:, role]]

    def swapped(self) -> SceneState:
        """The same worlds seen by somebody who mistakes the named object for the next one."""
        return replace(self, order=self.order[:, [1, 0, *range(2, self.order.shape[1])]])

    def other_side(self) -> SceneState:
        """The same worlds seen by somebody who mistakes one of two sides for the other."""
        return replace(self, side=1 - self.side)

    def with_rows(self, rows: np.ndarray, other: SceneState) -> SceneState:
        """This snapshot with `rows` (bool [N] or indices) taken from `other` (same N)."""

        def merged(mine: Any, theirs: Any) -> Any:
            if isinstance(mine, Mapping):
                return {name: merged(mine[name], theirs[name]) for name in mine}
            values = mine.copy()
            values[rows] = theirs[rows]
            return values

        return SceneState(**{f.name: merged(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)})


class SceneReader:
    """Reads snapshots of a scene from a backend."""

    def __init__(self, arm: Arm, props: Sequence[Prop], objects: Sequence[str]) -> None:
        """`objects`: names of the items, or of the points, that can be what the instruction names."""
        model = arm.backend.model
        items = {prop.name for prop in props if isinstance(prop, Item)}
        self._arm = arm
        self._bodies = [(c, model.body(name).id) for c, name in enumerate(objects) if name in items]
        self._sites = [(c, model.site(name).id) for c, name in enumerate(objects) if name not in items]
        self._count = len(objects)
        self._points = {name: model.site(name).id for prop in props for name in prop.points}
        self._joints = {name: int(model.joint(name).qposadr[0]) for prop in props for name in prop.joints}

    def read(self, order: npt.NDArray[np.int64], side: npt.NDArray[np.int64]) -> SceneState:
        """The state of every world now; `order` int64 [N, C] and `side` int64 [N] are what its episode is about."""
        backend = self._arm.backend
        objects = np.empty((backend.num_worlds, self._count, 3))
        for c, body in self._bodies:
            objects[:, c] = backend.xpos[:, body]
        for c, site in self._sites:
            objects[:, c] = backend.site_xpos[:, site]
        return SceneState(
            tool=self._arm.tool().copy(),
            commanded=self._arm.commanded.copy(),
            opening=self._arm.opening(),
            objects=objects,
            points={name: backend.site_xpos[:, site].copy() for name, site in self._points.items()},
            joints={name: backend.qpos[:, address].copy() for name, address in self._joints.items()},
            order=order.copy(),
            side=side.copy(),
        )
