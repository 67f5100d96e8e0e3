"""Arms: those in the box, and any position-actuated arm from a MuJoCo XML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
import numpy.typing as npt

from sim.compile_check import check_mjcf
from sim.control import FloatArray
from sim.errors import SimError, lookup
from sim.paths import ASSETS

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Robot:
    """An arm with a gripper, standing at the origin; x forwards, metres."""

    mjcf: Path
    """Its MuJoCo XML. Every hinge with a position actuator of its own is a joint of the arm."""
    tool: str = "tool"
    """Site between the finger tips: z out of the hand, the fingers open along y."""
    grip: str = "grip"
    """Actuator of the gripper: the upper end of its control range opens it, the lower end shuts it."""
    home: tuple[float, ...] | None = None
    """Joint angles that the arm prefers where the task leaves it freedom, rad; None: the middle of each range."""

    def load(self) -> mujoco.MjSpec:
        """Its description, to which a scene is added. Raises `SimError` saying what is missing."""
        spec = mujoco.MjSpec.from_file(str(self.mjcf))
        self._check(spec.copy().compile())
        return spec

    def joints(self, model: mujoco.MjModel) -> IntArray:
        """Ids of the arm's joints, in the order of their actuators, int [J]."""
        return model.actuator_trnid[self.actuators(model), 0]

    def actuators(self, model: mujoco.MjModel) -> IntArray:
        """Ids of the arm's actuators, int [J]."""
        driven = model.actuator_trntype == mujoco.mjtTrn.mjTRN_JOINT
        hinge = model.jnt_type[model.actuator_trnid[:, 0]] == mujoco.mjtJoint.mjJNT_HINGE
        return np.flatnonzero(driven & hinge & (np.arange(model.nu) != model.actuator(self.grip).id))

    def fingers(self, model: mujoco.MjModel) -> IntArray:
        """Ids of the joints that the gripper's actuator moves, int [F]."""
        actuator = model.actuator(self.grip)
        moved = int(actuator.trnid[0])
        if actuator.trntype[0] == mujoco.mjtTrn.mjTRN_TENDON:
            wrap = slice(model.tendon_adr[moved], model.tendon_adr[moved] + model.tendon_num[moved])
            return model.wrap_objid[wrap]
        return np.array([moved])

    def preferred(self, model: mujoco.MjModel) -> FloatArray:
        """The angles of `home`, [J]."""
        if self.home is not None:
            return np.array(self.home)
        return model.jnt_range[self.joints(model)].mean(axis=1)

    def _check(self, model: mujoco.MjModel) -> None:
        for kind, name, choices in (
            ("tool site", self.tool, [model.site(i).name for i in range(model.nsite)]),
            ("grip actuator", self.grip, [model.actuator(i).name for i in range(model.nu)]),
        ):
            lookup({choice: choice for choice in choices}, name, f"{kind} of {self.mjcf.name}")
        count = len(self.joints(model))
        if count < 6:
            raise SimError(
                f"{self.mjcf}: {count} hinges have a position actuator of their own; reaching any pose takes at least 6"
            )
        if self.home is not None and len(self.home) != count:
            raise SimError(f"robot.home has {len(self.home)} angles, {self.mjcf.name} has {count} actuated hinges")


def custom_robot(mjcf: Path | str, tool: str = "tool", grip: str = "grip") -> Robot:
    """The arm of a MuJoCo XML file of one's own. Raises `SimError` when its file cannot be used."""
    check_mjcf(Path(mjcf))
    robot = Robot(mjcf=Path(mjcf), tool=tool, grip=grip)
    robot.load()
    return robot


ROBOTS = {
    "panda": Robot(mjcf=ASSETS / "robots" / "panda_primitives.xml", home=(0.0, -0.25, 0.0, -2.55, 0.0, 2.3, 0.785)),
    "six_axis": Robot(
        mjcf=ASSETS / "robots" / "six_axis_primitives.xml", home=(-0.345, -0.037, 2.097, -0.489, -1.571, -1.916)
    ),
}
"""The arms in the box: seven joints, and six with another look."""


def find_robot(name: str) -> Robot:
    """The arm of that name, or of the XML file at that path. Raises `SimError` with the choices."""
    if name.endswith(".xml"):
        return custom_robot(name)
    return lookup(ROBOTS, name, "robot")
