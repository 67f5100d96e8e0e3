"""What a task may know of its worlds: positions of tool, cubes, drawer; one row a world."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from sim.arm import Arm
from sim.control import FloatArray
from sim.scene import COLOURS


@dataclass(frozen=True)
class SceneState:
    """A snapshot of N worlds; every array owns its memory."""

    tool: FloatArray
    """[N, 3]: tool position, m."""
    commanded: FloatArray
    """[N, 3]: commanded tool position, m."""
    opening: FloatArray
    """[N]: distance between the finger pads, m."""
    cubes: FloatArray
    """[N, C, 3]: cube centres in the order of `scene.COLOURS`, m."""
    drawer: FloatArray
    """[N]: how far the drawer is out, m."""
    knob: FloatArray
    """[N, 3]: where the fingers hold the knob, m."""
    tray: FloatArray
    """[N, 3]: the middle of the tray, m."""
    target: np.ndarray
    """int64 [N]: the cube that the instruction names."""

    def __len__(self) -> int:
        return len(self.tool)

    @property
    def target_cube(self) -> FloatArray:
        """[N, 3]: the cube that the instruction names."""
        return self.cubes[np.arange(len(self)), self.target]

    @property
    def other_cube(self) -> FloatArray:
        """[N, 3]: the cube that the instruction does not name."""
        return self.cubes[np.arange(len(self)), 1 - self.target]

    def swapped(self) -> SceneState:
        """The same worlds seen by somebody who mistakes one cube for the other."""
        return replace(self, target=1 - self.target)

    def with_rows(self, rows: np.ndarray, other: SceneState) -> SceneState:
        """This snapshot with `rows` (bool [N] or indices) taken from `other` (same N)."""
        merged = {}
        for item in fields(self):
            values = getattr(self, item.name).copy()
            values[rows] = getattr(other, item.name)[rows]
            merged[item.name] = values
        return SceneState(**merged)


class SceneReader:
    """Reads snapshots of the tabletop scene from a backend."""

    def __init__(self, arm: Arm) -> None:
        model = arm.backend.model
        self._arm = arm
        self._cubes = np.array([model.body(name).id for name in COLOURS])
        self._drawer = model.joint("drawer").qposadr[0]
        self._knob = model.site("knob").id
        self._tray = model.site("tray").id

    def read(self, target: np.ndarray) -> SceneState:
        """The state of every world now; `target` int64 [N] is the named cube of each."""
        backend = self._arm.backend
        return SceneState(
            tool=self._arm.tool().copy(),
            commanded=self._arm.commanded.copy(),
            opening=self._arm.opening(),
            cubes=backend.xpos[:, self._cubes].copy(),
            drawer=backend.qpos[:, self._drawer].copy(),
            knob=backend.site_xpos[:, self._knob].copy(),
            tray=backend.site_xpos[:, self._tray].copy(),
            target=target.copy(),
        )
