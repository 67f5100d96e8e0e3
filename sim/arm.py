"""The arm as its controller sees it: which columns are its joints, where its tool is, how it follows an action."""

from __future__ import annotations

from dataclasses import dataclass, field

import mujoco
import numpy as np

from sim.backends.base import Backend
from sim.control import DOWN, FloatArray, damped_least_squares, geometric_jacobian, orientation_error
from sim.errors import SimError
from sim.robots import Robot

ACTION_SIZE = 4
"""Displacement of the tool in x, y, z, and the grip (-1 opens, +1 closes), each in [-1, 1]."""
STEP = 0.04
"""Tool displacement of a full action, m per control step."""
LEAD = 0.06
"""How far the commanded tool position may run ahead of the real one, m."""
WORKSPACE = np.array([[0.28, -0.36, 0.012], [0.72, 0.36, 0.36]])
"""Lowest and highest tool position that can be commanded, m."""
POSTURE_GAIN = 0.2


@dataclass
class Arm:
    """Cartesian control of one arm in every world of a backend."""

    backend: Backend
    robot: Robot
    commanded: FloatArray = field(init=False)
    """[N, 3]: where the tool was told to be, m."""

    def __post_init__(self) -> None:
        model = self.backend.model
        self.joints = self.robot.joints(model)
        self.qpos = model.jnt_qposadr[self.joints]
        self.home = self.robot.preferred(model)
        self.tool_site = model.site(self.robot.tool).id
        fingers = self.robot.fingers(model)
        self.fingers, self.fingers_open = model.jnt_qposadr[fingers], model.jnt_range[fingers, 1]
        self.limits = model.jnt_range[self.joints]
        self.actuators = self.robot.actuators(model)
        self.grip_actuator = model.actuator(self.robot.grip).id
        self.shut, self.open = model.actuator_ctrlrange[self.grip_actuator]
        self.commanded = self.tool().copy()

    def tool(self) -> FloatArray:
        """Tool position [N, 3], m."""
        return self.backend.site_xpos[:, self.tool_site]

    def opening(self) -> FloatArray:
        """Distance between the finger pads [N], m: 0 closed."""
        return self.backend.qpos[:, self.fingers].sum(axis=1)

    def hold(self, rows: np.ndarray) -> None:
        """Command the current pose in `rows` (after a reset), grip open."""
        self.commanded[rows] = self.tool()[rows]
        self.backend.ctrl[rows[:, None], self.actuators] = self.backend.qpos[rows[:, None], self.qpos]
        self.backend.ctrl[rows, self.grip_actuator] = self.open

    def follow(self, action: FloatArray) -> None:
        """Turn actions [N, 4] in [-1, 1] into actuator targets."""
        tool = self.tool()
        goal = self.commanded + STEP * action[:, :3]
        goal = np.clip(goal, tool - LEAD, tool + LEAD)
        self.commanded[:] = np.clip(goal, *WORKSPACE)
        rotation = self.backend.site_xmat[:, self.tool_site].reshape(-1, 3, 3)
        error = np.concatenate([self.commanded - tool, orientation_error(rotation, DOWN)], axis=1)
        jacobian = geometric_jacobian(self.backend.xanchor[:, self.joints], self.backend.xaxis[:, self.joints], tool)
        angles = self.backend.qpos[:, self.qpos]
        target = angles + damped_least_squares(jacobian, error, POSTURE_GAIN * (self.home - angles))
        self.backend.ctrl[:, self.actuators] = np.clip(target, self.limits[:, 0], self.limits[:, 1])
        self.backend.ctrl[:, self.grip_actuator] = self.shut + (self.open - self.shut) * 0.5 * (1 - action[:, 3])


def inverse_kinematics(model: mujoco.MjModel, robot: Robot, position: FloatArray, steps: int = 60) -> FloatArray:
    """Joint angles [N, J] that put the tool at `position` [N, 3], fingers down; for start poses.

    Raises `SimError` when a position is not reached within 1 mm.
    """
    data = mujoco.MjData(model)
    ids = robot.joints(model)
    address, tool_site = model.jnt_qposadr[ids], data.site(robot.tool)
    angles = np.tile(robot.preferred(model), (len(position), 1))
    for row, goal in enumerate(position):
        distance = np.inf
        for _ in range(steps):
            data.qpos[address] = angles[row]
            mujoco.mj_kinematics(model, data)
            tool, rotation = tool_site.xpos[None], tool_site.xmat.reshape(1, 3, 3)
            error = np.concatenate([goal - tool, orientation_error(rotation, DOWN)], axis=1)
            distance = float(np.abs(error).max())
            if distance < 1e-4:
                break
            step = damped_least_squares(geometric_jacobian(data.xanchor[None, ids], data.xaxis[None, ids], tool), error)
            angles[row] += step[0]
        if distance > 1e-3:
            raise SimError(
                f"no joint angles put the tool at {goal.round(3).tolist()} m, fingers down (error {distance:.4f}); "
                f"{robot.mjcf.name} must reach there, and z of its site {robot.tool!r} point out of the hand"
            )
    return angles
