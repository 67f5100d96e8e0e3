"""Arms: those in the box, and any position-actuated arm from a MuJoCo XML file."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
        """Joint angles that the arm prefers where the task leaves it freedom, [J], rad: those of the file's keyframe
        "home", or without one the middle of each range."""
        joints = self.joints(model)
        key = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_KEY, "home")
        return model.jnt_range[joints].mean(axis=1) if key < 0 else model.key_qpos[key, model.jnt_qposadr[joints]]

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
        self._check_ranges(model)

    def _check_ranges(self, model: mujoco.MjModel) -> None:
        grip = model.actuator(self.grip).id
        for joint in self.joints(model):
            if not model.jnt_limited[joint]:
                raise SimError(f"{self.mjcf}: its joint {model.joint(joint).name!r} needs a range")
        for actuator in (*self.actuators(model), grip):
            if model.actuator_biastype[actuator] != mujoco.mjtBias.mjBIAS_AFFINE:
                raise SimError(f"{self.mjcf}: its actuator {model.actuator(actuator).name!r} must be a <position>")
        if not model.actuator_ctrllimited[grip]:
            raise SimError(f"{self.mjcf}: its actuator {self.grip!r} needs a ctrlrange, from shut to open")


def custom_robot(mjcf: Path | str, tool: str = "tool", grip: str = "grip") -> Robot:
    """The arm of a MuJoCo XML file of one's own. Raises `SimError` when its file cannot be used."""
    check_mjcf(Path(mjcf))
    robot = Robot(mjcf=Path(mjcf), tool=tool, grip=grip)
    robot.load()
    return robot


ROBOTS = {
    name: Robot(mjcf=ASSETS / "robots" / file)
    for name, file in (("panda", "panda_primitives.xml"), ("six_axis", "six_axis_primitives.xml"))
}
"""The arms in the box: seven joints, and six with another look."""


def find_robot(name: str, tool: str = "tool", grip: str = "grip") -> Robot:
    """The arm of that name, or of the XML file at that path, with its tool site and its gripper's actuator.

    Raises `SimError` with the choices.
    """
    if name.endswith(".xml"):
        return custom_robot(name, tool, grip)
    return replace(lookup(ROBOTS, name, "robot"), tool=tool, grip=grip)


def robot_name(robot: Robot) -> str:
    """The arm's name in the box, or the path of its file."""
    return next((name for name, known in ROBOTS.items() if known == robot), str(robot.mjcf))
