"""Scene state that tasks read: tool, objects, named points and joints; one row per environment."""

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
    """State of N environments; every array owns its memory."""

    tool_pos: FloatArray  # [N, 3]: tool position, m
    target_pos: FloatArray  # [N, 3]: commanded tool position, m
    gripper_opening: FloatArray  # [N]: distance between the finger pads, m
    object_positions: FloatArray  # [N, C, 3]: positions of the task's objects, m
    points: Mapping[str, FloatArray]  # name -> [N, 3]: points of the props, m
    joints: Mapping[str, FloatArray]  # name -> [N]: joint positions of the props, m or rad
    object_order: npt.NDArray[np.int64]  # [N, C]: index of the object in each role; the instruction names role 0
    side_index: npt.NDArray[np.int64]  # [N]: index of the target side

    def __len__(self) -> int:
        return len(self.tool_pos)

    def object_position(self, role: int = 0) -> FloatArray:
        """Return the position [N, 3] of the object in a role, m; by default the one that the instruction names."""
        return self.object_positions[np.arange(len(self)), self.object_order[:, role]]

    def with_swapped_objects(self) -> SceneState:
        """Return the state with roles 0 and 1 swapped, as if the named object were confused with the next one."""
        return replace(self, object_order=self.object_order[:, [1, 0, *range(2, self.object_order.shape[1])]])

    def with_other_side(self) -> SceneState:
        """Return the state with the other of two sides as the target."""
        return replace(self, side_index=1 - self.side_index)

    def replace_rows(self, rows: np.ndarray, source: SceneState) -> SceneState:
        """Return this state with `rows` (bool [N] or indices) taken from `source` (same N)."""

        def merge(current: Any, replacement: Any) -> Any:
            if isinstance(current, Mapping):
                return {name: merge(current[name], replacement[name]) for name in current}
            values = current.copy()
            values[rows] = replacement[rows]
            return values

        return SceneState(**{f.name: merge(getattr(self, f.name), getattr(source, f.name)) for f in fields(self)})


class SceneReader:
    """Read the state of a scene from a backend."""

    def __init__(self, arm: ArmController, props: Sequence[Prop], object_names: Sequence[str]) -> None:
        """Look up bodies, sites and joints. `object_names`: items or points that instructions can name."""
        model = arm.backend.model
        item_names = {prop.name for prop in props if isinstance(prop, Item)}
        self._arm = arm
        self._objects = [
            ("xpos", model.body(name).id) if name in item_names else ("site_xpos", model.site(name).id)
            for name in object_names
        ]
        self._points = {name: model.site(name).id for prop in props for name in prop.point_names}
        self._joints = {name: int(model.joint(name).qposadr[0]) for prop in props for name in prop.joint_names}

    def read(self, object_order: npt.NDArray[np.int64], side_index: npt.NDArray[np.int64]) -> SceneState:
        """Return the current state, with the episodes' `object_order` int64 [N, C] and `side_index` int64 [N]."""
        backend = self._arm.backend
        object_positions = np.empty((backend.num_worlds, len(self._objects), 3))
        for index, (field, address) in enumerate(self._objects):
            object_positions[:, index] = getattr(backend, field)[:, address]
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
