"""Arm control: Cartesian actions to actuator targets."""

from dataclasses import dataclass, field

import mujoco
import numpy as np

from embodied_sim.backends.backend import PhysicsBackend
from embodied_sim.control import (
    DOWN_ORIENTATION,
    FloatArray,
    damped_least_squares,
    geometric_jacobian,
    orientation_error,
)
from embodied_sim.robots import Robot
from embodied_sim.sim_errors import SimError

ACTION_DIM = 4  # displacement of the tool in x, y, z, and the grip (-1 opens, +1 closes), each in [-1, 1]
MAX_TOOL_STEP_M = 0.04  # tool displacement of a full action, m per control step
MAX_TOOL_LEAD_M = 0.06  # maximum distance per axis between commanded and actual tool position, m
WORKSPACE_BOUNDS_M = np.array([[0.28, -0.36, 0.012], [0.72, 0.36, 0.36]])
"""Lower and upper bounds of the commanded tool position, m."""
POSTURE_GAIN = 0.2


@dataclass
class ArmController:
    """Cartesian controller of one arm per world of a backend."""

    backend: PhysicsBackend
    robot: Robot
    target_pos: FloatArray = field(init=False)  # [N, 3]: commanded tool position, m

    def __post_init__(self) -> None:
        model = self.backend.model
        self.joint_ids = self.robot.joint_ids(model)
        self.qpos_ids = model.jnt_qposadr[self.joint_ids]
        self.home_qpos = self.robot.home_qpos(model)
        self.tool_site_id = model.site(self.robot.tool_site).id
        finger_ids = self.robot.finger_joint_ids(model)
        self.finger_qpos_ids, self.finger_open_qpos = model.jnt_qposadr[finger_ids], model.jnt_range[finger_ids, 1]
        self.joint_limits = model.jnt_range[self.joint_ids]
        self.actuator_ids = self.robot.actuator_ids(model)
        self.gripper_actuator_id = model.actuator(self.robot.gripper_actuator).id
        self.closed_ctrl, self.open_ctrl = model.actuator_ctrlrange[self.gripper_actuator_id]
        self.target_pos = self.tool_pos().copy()

    def tool_pos(self) -> FloatArray:
        """Return the tool position [N, 3], m."""
        return self.backend.site_xpos[:, self.tool_site_id]

    def gripper_opening(self) -> FloatArray:
        """Return the distance between the finger pads [N], m; 0 is closed."""
        return self.backend.qpos[:, self.finger_qpos_ids].sum(axis=1)

    def grip_command(self) -> FloatArray:
        """Return the commanded grip [N], from -1, open, to +1, closed."""
        half_range = (self.open_ctrl - self.closed_ctrl) * 0.5
        return 1 - (self.backend.ctrl[:, self.gripper_actuator_id] - self.closed_ctrl) / half_range

    def hold_position(self, rows: np.ndarray) -> None:
        """Command the current pose in `rows` with the gripper open; for use after a reset."""
        self.target_pos[rows] = self.tool_pos()[rows]
        self.backend.ctrl[rows[:, None], self.actuator_ids] = self.backend.qpos[rows[:, None], self.qpos_ids]
        self.backend.ctrl[rows, self.gripper_actuator_id] = self.open_ctrl

    def apply_action(self, action: FloatArray) -> None:
        """Convert actions [N, 4] in [-1, 1] to actuator targets."""
        backend, tool_pos = self.backend, self.tool_pos()
        goal = self.target_pos + MAX_TOOL_STEP_M * action[:, :3]
        goal = np.clip(goal, tool_pos - MAX_TOOL_LEAD_M, tool_pos + MAX_TOOL_LEAD_M)
        self.target_pos[:] = np.clip(goal, *WORKSPACE_BOUNDS_M)
        rotation = backend.site_xmat[:, self.tool_site_id].reshape(-1, 3, 3)
        error = np.concatenate([self.target_pos - tool_pos, orientation_error(rotation, DOWN_ORIENTATION)], axis=1)
        jacobian = geometric_jacobian(backend.xanchor[:, self.joint_ids], backend.xaxis[:, self.joint_ids], tool_pos)
        angles = backend.qpos[:, self.qpos_ids]
        target = angles + damped_least_squares(jacobian, error, POSTURE_GAIN * (self.home_qpos - angles))
        backend.ctrl[:, self.actuator_ids] = np.clip(target, self.joint_limits[:, 0], self.joint_limits[:, 1])
        half_range = (self.open_ctrl - self.closed_ctrl) * 0.5
        backend.ctrl[:, self.gripper_actuator_id] = self.closed_ctrl + half_range * (1 - action[:, 3])


def inverse_kinematics(
    model: mujoco.MjModel, robot: Robot, position: FloatArray, max_iterations: int = 60
) -> FloatArray:
    """Return joint angles [N, J], rad, that place the tool at `position` [N, 3], m, with the fingers down.

    Raises `SimError` if a position is not reached within 1 mm in `max_iterations`.
    """
    angles = np.tile(robot.home_qpos(model), (len(position), 1))
    residual = np.full(len(position), np.inf)
    rows, data = np.arange(len(position)), mujoco.MjData(model)
    for _ in range(max_iterations):
        tool_pos, rotation, xanchor, xaxis = _arm_kinematics(data, robot, angles[rows])
        error = np.concatenate([position[rows] - tool_pos, orientation_error(rotation, DOWN_ORIENTATION)], axis=1)
        residual[rows] = np.abs(error).max(axis=1)
        far = residual[rows] >= 1e-4
        rows = rows[far]
        if len(rows) == 0:
            break
        jacobian = geometric_jacobian(xanchor[far], xaxis[far], tool_pos[far])
        angles[rows] += damped_least_squares(jacobian, error[far])
    if (residual > 1e-3).any():
        row = int(np.argmax(residual > 1e-3))
        raise SimError(
            f"no joint angles put the tool at {position[row].round(3).tolist()} m, fingers down (error "
            f"{residual[row]:.4f}); {robot.mjcf_path.name} must reach there, and z of its site {robot.tool_site!r} "
            "point out of the hand"
        )
    return angles


def _arm_kinematics(
    data: mujoco.MjData, robot: Robot, angles: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return the tool's position [N, 3], m, and rotation [N, 3, 3], and the joints' anchors and axes [N, J, 3]."""
    model = data.model
    joint_ids, tool_site = robot.joint_ids(model), data.site(robot.tool_site)
    tool_pos, rotation = np.empty((len(angles), 3)), np.empty((len(angles), 3, 3))
    xanchor, xaxis = np.empty((2, *angles.shape, 3))
    for row, values in enumerate(angles):
        data.qpos[model.jnt_qposadr[joint_ids]] = values
        mujoco.mj_kinematics(model, data)
        tool_pos[row], rotation[row] = tool_site.xpos, tool_site.xmat.reshape(3, 3)
        xanchor[row], xaxis[row] = data.xanchor[joint_ids], data.xaxis[joint_ids]
    return tool_pos, rotation, xanchor, xaxis
