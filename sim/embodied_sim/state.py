"""What a task may know of its worlds: where tool, objects, named places and joints are; one row a world."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from embodied_sim.arm import ArmController
from embodied_sim.control import FloatArray
from embodied_sim.props import Item, Prop


@dataclass(frozen=True)
class SceneState:
    """A snapshot of N worlds; every array owns its memory."""

    tool_pos: FloatArray
    """[N, 3]: tool position, m."""
    target_pos: FloatArray
    """[N, 3]: commanded tool position, m."""
    gripper_opening: FloatArray
    """[N]: distance between the finger pads, m."""
    object_positions: FloatArray
    """[N, C, 3]: where the task's objects are, m."""
    points: Mapping[str, FloatArray]
    """Name -> [N, 3]: places of the props, m."""
    joints: Mapping[str, FloatArray]
    """Name -> [N]: joints of the props, m or rad."""
    object_order: npt.NDArray[np.int64]
    """[N, C]: index of the object in each role; role 0 is what the instruction names."""
    side_index: npt.NDArray[np.int64]
    """[N]: which of the task's sides is meant."""

    def __len__(self) -> int:
        return len(self.tool_pos)

    def object_position(self, role: int = 0) -> FloatArray:
        """[N, 3]: where the object in that role is, m; by default the one that the instruction names."""
        return self.object_positions[np.arange(len(self)), self.object_order[:, role]]

    def with_swapped_objects(self) -> SceneState:
        """The same worlds seen by somebody who mistakes the named object for the next one."""
        return replace(self, object_order=self.object_order[:, [1, 0, *range(2, self.object_order.shape[1])]])

    def with_other_side(self) -> SceneState:
        """The same worlds seen by somebody who mistakes one of two sides for the other."""
        return replace(self, side_index=1 - self.side_index)

    def replace_rows(self, rows: np.ndarray, source: SceneState) -> SceneState:
        """This snapshot with `rows` (bool [N] or indices) taken from `other` (same N)."""

        def merge(current: Any, replacement: Any) -> Any:
            if isinstance(current, Mapping):
                return {name: merge(current[name], replacement[name]) for name in current}
            values = current.copy()
            values[rows] = replacement[rows]
            return values

        return SceneState(**{f.name: merge(getattr(self, f.name), getattr(source, f.name)) for f in fields(self)})


class SceneReader:
    """Reads snapshots of a scene from a backend."""

    def __init__(self, arm: ArmController, props: Sequence[Prop], object_names: Sequence[str]) -> None:
        """`objects`: names of the items, or of the points, that can be what the instruction names."""
        model = arm.backend.model
        item_names = {prop.name for prop in props if isinstance(prop, Item)}
        self._arm = arm
        self._object_bodies = [
            (index, model.body(name).id) for index, name in enumerate(object_names) if name in item_names
        ]
        self._object_sites = [
            (index, model.site(name).id) for index, name in enumerate(object_names) if name not in item_names
        ]
        self._num_objects = len(object_names)
        self._points = {name: model.site(name).id for prop in props for name in prop.point_names}
        self._joints = {name: int(model.joint(name).qposadr[0]) for prop in props for name in prop.joint_names}

    def read(self, object_order: npt.NDArray[np.int64], side_index: npt.NDArray[np.int64]) -> SceneState:
        """The state of every world now; `order` int64 [N, C] and `side` int64 [N] are what its episode is about."""
        backend = self._arm.backend
        object_positions = np.empty((backend.num_worlds, self._num_objects, 3))
        for index, body in self._object_bodies:
            object_positions[:, index] = backend.xpos[:, body]
        for index, site in self._object_sites:
            object_positions[:, index] = backend.site_xpos[:, site]
        return SceneState(
            tool_pos=self._arm.tool_pos().copy(),
            target_pos=self._arm.target_pos.copy(),
            gripper_opening=self._arm.gripper_opening(),
            object_positions=object_positions,
            points={name: backend.site_xpos[:, site].copy() for name, site in self._points.items()},
            joints={name: backend.qpos[:, address].copy() for name, address in self._joints.items()},
            object_order=object_order.copy(),
            side_index=side_index.copy(),
        )
