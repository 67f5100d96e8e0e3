"""The Cartesian controller: its Jacobian is the derivative, its null space moves no tool."""

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.arm import HOME, WORKSPACE, inverse_kinematics
from sim.control import DOWN, damped_least_squares, geometric_jacobian, orientation_error
from sim.scene import build_scene

MODEL = build_scene(())
DATA = mujoco.MjData(MODEL)
JOINTS = [MODEL.joint(f"joint{i}").id for i in range(1, 8)]


def tool_pose(angles):
    DATA.qpos[:7] = angles
    mujoco.mj_kinematics(MODEL, DATA)
    return DATA.site("tool").xpos.copy(), DATA.site("tool").xmat.reshape(3, 3).copy()


def jacobian_at(angles):
    tool, _ = tool_pose(angles)
    return geometric_jacobian(DATA.xanchor[None, JOINTS], DATA.xaxis[None, JOINTS], tool[None])


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_jacobian_is_the_derivative_of_the_tool_pose(seed):
    angles = HOME + np.random.default_rng(seed).uniform(-0.4, 0.4, 7)
    jacobian = jacobian_at(angles)[0]
    tool, rotation = tool_pose(angles)
    for joint in range(7):
        moved, turned = tool_pose(angles + 1e-6 * np.eye(7)[joint])
        assert np.allclose((moved - tool) / 1e-6, jacobian[:3, joint], atol=1e-4)
        turn = orientation_error(rotation[None], turned[None])[0]
        assert np.allclose(turn / 1e-6, jacobian[3:, joint], atol=1e-4)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_posture_does_not_move_the_tool(seed):
    rng = np.random.default_rng(seed)
    jacobian = jacobian_at(HOME + rng.uniform(-0.3, 0.3, 7))
    posture = rng.uniform(-0.1, 0.1, (1, 7))
    step = damped_least_squares(jacobian, np.zeros((1, 6)), posture, damping=1e-6)
    assert np.allclose(jacobian[0] @ step[0], 0.0, atol=1e-6)


def test_orientation_error_vanishes_at_the_goal():
    assert np.allclose(orientation_error(DOWN[None], DOWN), 0.0)


def test_inverse_kinematics_puts_the_tool_there_pointing_down():
    goals = np.array([[0.4, 0.1, 0.2], [0.5, -0.25, 0.1], [0.55, 0.2, 0.08]])
    for goal, angles in zip(goals, inverse_kinematics(MODEL, goals), strict=True):
        tool, rotation = tool_pose(angles)
        assert np.allclose(tool, goal, atol=1e-3)
        assert np.allclose(rotation, DOWN, atol=2e-3)
        limits = MODEL.jnt_range[JOINTS]
        assert ((limits[:, 0] < angles) & (angles < limits[:, 1])).all()


def test_unreachable_positions_are_refused():
    with pytest.raises(ValueError, match=r"no joint angles put the tool at \[2\.0, 0\.0, 0\.2\]"):
        inverse_kinematics(MODEL, np.array([[2.0, 0.0, 0.2]]))
    assert WORKSPACE[1, 0] < 0.9
