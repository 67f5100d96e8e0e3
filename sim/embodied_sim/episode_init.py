"""Start states of episodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from embodied_sim.arm import ArmController, inverse_kinematics
from embodied_sim.backends.backend import PhysicsBackend
from embodied_sim.control import FloatArray
from embodied_sim.domain_randomization import Randomization
from embodied_sim.layout import Layout, start_tool_positions
from embodied_sim.palette import PALETTE
from embodied_sim.task import Task

NUM_START_POSES = 96
Rows = npt.NDArray[np.int64]


@dataclass
class EpisodeInitializer:
    """Write layouts and randomized model fields into the worlds of a backend."""

    backend: PhysicsBackend
    arm: ArmController
    task: Task
    randomization: Randomization
    _start_qpos: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        self._start_qpos = inverse_kinematics(self.backend.model, self.arm.robot, start_tool_positions(NUM_START_POSES))

    def initialize(self, rows: Rows, layouts: Sequence[Layout]) -> None:
        """Write the start state of an episode into each of `rows`."""
        model = self.backend.model
        qpos = np.tile(model.qpos0, (len(rows), 1))
        qpos[:, self.arm.qpos_ids] = self._start_qpos[[layout.start_pose_index for layout in layouts]]
        qpos[:, self.arm.finger_qpos_ids] = self.arm.finger_open_qpos
        for name in layouts[0].joint_positions:
            qpos[:, model.joint(name).qposadr[0]] = [layout.joint_positions[name] for layout in layouts]
        for i, item in enumerate(self.task.items):
            qpos_id = int(model.joint(item.name).qposadr[0])
            poses = np.array([layout.item_poses[i] for layout in layouts])
            qpos[:, qpos_id : qpos_id + 2] = poses[:, :2]
            qpos[:, qpos_id + 3] = np.cos(poses[:, 2] / 2)
            qpos[:, qpos_id + 6] = np.sin(poses[:, 2] / 2)
        for i, fixture in enumerate(self.task.fixtures):
            mocap = model.body(fixture.name).mocapid[0]
            self.backend.mocap_pos[rows, mocap, :2] = [layout.fixture_positions[i] for layout in layouts]
        self._apply_colors(rows, layouts)
        self.backend.set_state(rows, qpos, np.zeros((len(rows), model.nv)))

    def apply_randomization(self, rngs: Mapping[int, np.random.Generator]) -> Rows:
        """Draw and apply the randomization of these rows, and return their latencies in control steps.

        The draws use spawned random streams, so they do not change the layouts.
        """
        if self.randomization == Randomization():
            return np.zeros(len(rngs), np.int64)
        model, latencies = self.backend.model, []
        item_body_ids = [model.body(item.name).id for item in self.task.items]
        for row, row_rng in rngs.items():
            rng = np.random.default_rng(row_rng.bit_generator.seed_seq.spawn(1)[0])  # type: ignore[attr-defined]
            for name, value in self.randomization.sample(model, item_body_ids, rng).items():
                self.backend.expand_field(name)[row] = value
            latencies.append(int(rng.integers(self.randomization.latency + 1)))
        return np.array(latencies, np.int64)

    def _apply_colors(self, rows: Rows, layouts: Sequence[Layout]) -> None:
        """Color the objects whose color the layout draws."""
        for c, prop in enumerate(self.task.object_props):
            if prop.color is None:
                geoms = [self.backend.model.geom(name).id for name in prop.colored_geoms]
                rgba = np.array([PALETTE[layout.colors[c]] for layout in layouts])
                self.backend.expand_field("geom_rgba")[rows[:, None], geoms] = rgba[:, None]
