"""Brings worlds to where their episodes start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sim.arm import Arm, inverse_kinematics
from sim.backends.base import Backend
from sim.control import FloatArray
from sim.layout import Layout, start_positions
from sim.props.base import PALETTE
from sim.randomize import Randomization
from sim.task import Task

START_POSES = 96
Rows = npt.NDArray[np.int64]


@dataclass
class Placer:
    """Writes layouts, and how worlds differ, into the worlds of a backend."""

    backend: Backend
    arm: Arm
    task: Task
    randomize: Randomization
    _angles: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        self._angles = inverse_kinematics(self.backend.model, self.arm.robot, start_positions(START_POSES))

    def place(self, rows: Rows, layouts: Sequence[Layout]) -> None:
        """Start an episode in each of `rows`."""
        model = self.backend.model
        qpos = np.tile(model.qpos0, (len(rows), 1))
        qpos[:, self.arm.qpos] = self._angles[[layout.start_pose for layout in layouts]]
        qpos[:, self.arm.fingers] = self.arm.fingers_open
        for name in layouts[0].joints:
            qpos[:, model.joint(name).qposadr[0]] = [layout.joints[name] for layout in layouts]
        for i, item in enumerate(self.task.items):
            address = int(model.joint(item.name).qposadr[0])
            pose = np.array([layout.items[i] for layout in layouts])
            qpos[:, address : address + 2] = pose[:, :2]
            qpos[:, address + 3] = np.cos(pose[:, 2] / 2)
            qpos[:, address + 6] = np.sin(pose[:, 2] / 2)
        for i, fixture in enumerate(self.task.fixtures):
            mocap = model.body(fixture.name).mocapid[0]
            self.backend.mocap_pos[rows, mocap, :2] = [layout.fixtures[i] for layout in layouts]
        self._paint(rows, layouts)
        self.backend.set_state(rows, qpos, np.zeros((len(rows), model.nv)))

    def vary(self, streams: Mapping[int, np.random.Generator]) -> Rows:
        """Draw how the worlds of these rows differ; the latency of each, control steps.

        Each draw has a stream of its own, so that the layouts stay what they would be anyway.
        """
        if self.randomize == Randomization():
            return np.zeros(len(streams), np.int64)
        model, late = self.backend.model, []
        items = [model.body(item.name).id for item in self.task.items]
        for row, stream in streams.items():
            rng = np.random.default_rng(stream.bit_generator.seed_seq.spawn(1)[0])  # type: ignore[attr-defined]
            for name, value in self.randomize.draw(model, items, rng).items():
                self.backend.vary(name)[row] = value
            late.append(int(rng.integers(self.randomize.latency + 1)))
        return np.array(late, np.int64)

    def _paint(self, rows: Rows, layouts: Sequence[Layout]) -> None:
        """Give the objects whose colour is drawn for every episode the colours of their layouts."""
        for c, prop in enumerate(self.task.object_props):
            if prop.colour is None:
                geoms = [self.backend.model.geom(name).id for name in prop.painted]
                rgba = np.array([PALETTE[layout.colours[c]] for layout in layouts])
                self.backend.vary("geom_rgba")[rows[:, None], geoms] = rgba[:, None]
