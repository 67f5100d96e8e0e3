"""Robot arms: the bundled ones, and any position-actuated arm from a MuJoCo XML file."""

from dataclasses import dataclass, replace
from pathlib import Path

import mujoco
import numpy as np
import numpy.typing as npt

from embodied_sim.control import FloatArray
from embodied_sim.mjcf_check import check_mjcf
from embodied_sim.sim_errors import SimError, lookup

IntArray = npt.NDArray[np.int64]

_PACKAGE_DIR = Path(__file__).resolve().parent
_PACKAGED_ROBOTS_DIR = _PACKAGE_DIR / "robot_files"
ROBOTS_DIR = _PACKAGED_ROBOTS_DIR if _PACKAGED_ROBOTS_DIR.is_dir() else _PACKAGE_DIR.parents[1] / "assets" / "robots"
"""Folder of the bundled arms: inside the installed package, or at the top of a checkout."""


@dataclass(frozen=True, kw_only=True)
class Robot:
    """Arm with a gripper; base at the origin, x forward, meters."""

    mjcf_path: Path
    """MuJoCo XML file. Every hinge with its own position actuator is a joint of the arm."""
    tool_site: str = "tool"  # site between the finger tips: z points out of the hand, the fingers open along y
    gripper_actuator: str = "grip"
    """Actuator of the gripper: the upper end of its control range is open, the lower end closed."""

    def load_spec(self) -> mujoco.MjSpec:
        """Return the description, to which a scene is added. Raises `SimError` if the arm is not usable."""
        spec = mujoco.MjSpec.from_file(str(self.mjcf_path))
        self._validate(spec.copy().compile())
        return spec

    def joint_ids(self, model: mujoco.MjModel) -> IntArray:
        """Return the ids of the arm's joints, int [J], in the order of their actuators."""
        return model.actuator_trnid[self.actuator_ids(model), 0]

    def actuator_ids(self, model: mujoco.MjModel) -> IntArray:
        """Return the ids of the arm's actuators, int [J]."""
        drives_joint = model.actuator_trntype == mujoco.mjtTrn.mjTRN_JOINT
        is_hinge = model.jnt_type[model.actuator_trnid[:, 0]] == mujoco.mjtJoint.mjJNT_HINGE
        is_gripper = np.arange(model.nu) == model.actuator(self.gripper_actuator).id
        return np.flatnonzero(drives_joint & is_hinge & ~is_gripper)

    def finger_joint_ids(self, model: mujoco.MjModel) -> IntArray:
        """Return the ids of the joints that the gripper's actuator moves, int [F]."""
        actuator = model.actuator(self.gripper_actuator)
        driven_id = int(actuator.trnid[0])
        if actuator.trntype[0] == mujoco.mjtTrn.mjTRN_TENDON:
            return model.wrap_objid[model.tendon_adr[driven_id] :][: model.tendon_num[driven_id]]
        return np.array([driven_id])

    def home_qpos(self, model: mujoco.MjModel) -> FloatArray:
        """Return the preferred joint angles, [J], rad: the keyframe "home", or without one the middle of each range."""
        joints = self.joint_ids(model)
        keyframe_id = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_KEY, "home")
        if keyframe_id < 0:
            return model.jnt_range[joints].mean(axis=1)
        return model.key_qpos[keyframe_id, model.jnt_qposadr[joints]]

    def _validate(self, model: mujoco.MjModel) -> None:
        sites = {model.site(i).name: i for i in range(model.nsite)}
        actuators = {model.actuator(i).name: i for i in range(model.nu)}
        lookup(sites, self.tool_site, f"tool site of {self.mjcf_path.name}")
        lookup(actuators, self.gripper_actuator, f"gripper actuator of {self.mjcf_path.name}")
        num_joints = len(self.joint_ids(model))
        if num_joints < 6:
            raise SimError(
                f"{self.mjcf_path}: {num_joints} hinges have their own position actuator; "
                "reaching any pose needs at least 6"
            )
        self._validate_ranges(model)

    def _validate_ranges(self, model: mujoco.MjModel) -> None:
        gripper_id = model.actuator(self.gripper_actuator).id
        for joint in self.joint_ids(model):
            if not model.jnt_limited[joint]:
                raise SimError(f"{self.mjcf_path}: its joint {model.joint(joint).name!r} needs a range")
        for actuator in (*self.actuator_ids(model), gripper_id):
            if model.actuator_biastype[actuator] != mujoco.mjtBias.mjBIAS_AFFINE:
                raise SimError(f"{self.mjcf_path}: its actuator {model.actuator(actuator).name!r} must be a <position>")
        if not model.actuator_ctrllimited[gripper_id]:
            raise SimError(
                f"{self.mjcf_path}: its actuator {self.gripper_actuator!r} needs a ctrlrange, from closed to open"
            )


def load_robot_file(mjcf_path: Path | str, tool_site: str = "tool", gripper_actuator: str = "grip") -> Robot:
    """Load an arm from your own MuJoCo XML file; see `Robot`. Raises `SimError` if the file cannot be used."""
    check_mjcf(Path(mjcf_path))
    robot = Robot(mjcf_path=Path(mjcf_path), tool_site=tool_site, gripper_actuator=gripper_actuator)
    robot.load_spec()
    return robot


ROBOTS = {
    name: Robot(mjcf_path=ROBOTS_DIR / file)
    for name, file in (("panda", "panda_primitives.xml"), ("six_axis", "six_axis_primitives.xml"))
}
"""Bundled arms: one with seven joints, one with six and another appearance."""


def find_robot(name: str, tool_site: str = "tool", gripper_actuator: str = "grip") -> Robot:
    """Return the bundled arm of that name, or load the XML file at that path. Raises `SimError` with the choices."""
    if name.endswith(".xml"):
        return load_robot_file(name, tool_site, gripper_actuator)
    return replace(lookup(ROBOTS, name, "robot"), tool_site=tool_site, gripper_actuator=gripper_actuator)


def robot_name(robot: Robot) -> str:
    """Return the name of a bundled arm, or the path of its file."""
    return next((name for name, known in ROBOTS.items() if known == robot), str(robot.mjcf_path))
