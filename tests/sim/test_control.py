"""Cartesian controller, inverse kinematics and robot files."""

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embodied_sim.arm import WORKSPACE_BOUNDS_M, inverse_kinematics
from embodied_sim.control import DOWN_ORIENTATION, damped_least_squares, geometric_jacobian, orientation_error
from embodied_sim.props import Item
from embodied_sim.robots import ROBOTS, find_robot, load_robot_file
from embodied_sim.scene import build_scene
from embodied_sim.sim_errors import SimError

ROBOT = ROBOTS["panda"]
MODEL = build_scene((), ROBOT)
HOME = ROBOT.home_qpos(MODEL)
DATA = mujoco.MjData(MODEL)
JOINTS = ROBOT.joint_ids(MODEL)


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
    assert np.allclose(orientation_error(DOWN_ORIENTATION[None], DOWN_ORIENTATION), 0.0)


@pytest.mark.parametrize("name", ROBOTS)
def test_inverse_kinematics_reaches_positions_with_fingers_down(name):
    robot, model = ROBOTS[name], build_scene((), ROBOTS[name])
    data, joints = mujoco.MjData(model), robot.joint_ids(model)
    corners = np.array(np.meshgrid(*WORKSPACE_BOUNDS_M.T)).reshape(3, -1).T
    reachable = corners[np.linalg.norm(corners, axis=1) < 0.75]
    for goal, angles in zip(reachable, inverse_kinematics(model, robot, reachable), strict=True):
        data.qpos[model.jnt_qposadr[joints]] = angles
        mujoco.mj_kinematics(model, data)
        assert np.allclose(data.site(robot.tool_site).xpos, goal, atol=1e-3)
        assert np.allclose(data.site(robot.tool_site).xmat.reshape(3, 3), DOWN_ORIENTATION, atol=2e-3)
        limits = model.jnt_range[joints]
        assert ((limits[:, 0] < angles) & (angles < limits[:, 1])).all()


def test_unreachable_positions_are_rejected():
    with pytest.raises(SimError, match=r"no joint angles put the tool at \[2\.0, 0\.0, 0\.2\]"):
        inverse_kinematics(MODEL, ROBOT, np.array([[2.0, 0.0, 0.2]]))


ARM_MJCF = """<mujoco><worldbody><body pos="0 0 .3">{links}<body name="hand" pos="0 0 .2"><site name="tip"/>
<body name="jaw"><joint name="jaw" type="slide" axis="0 1 0" range="0 .05"/><geom size=".01" mass=".1"/></body></body>
{ends}</body></worldbody>
<actuator>{motors}<position name="squeeze" joint="jaw" ctrlrange="0 .05"/></actuator></mujoco>"""


def write_arm(path, joints):
    axes = ["0 0 1", "0 1 0", "0 0 1", "0 1 0", "0 0 1", "0 1 0", "0 0 1"][:joints]
    links = "".join(f'<body pos="0 0 .1"><joint name="j{i}" axis="{axis}" range="-3 3"/><geom size=".04" mass="1"/>'
                    for i, axis in enumerate(axes))  # fmt: skip
    motors = "".join(f'<position joint="j{i}" kp="500"/>' for i in range(joints))
    path.write_text(ARM_MJCF.format(links=links, ends="</body>" * joints, motors=motors))
    return path


def test_arm_from_file(tmp_path):
    robot = load_robot_file(write_arm(tmp_path / "arm.xml", 7), tool_site="tip", gripper_actuator="squeeze")
    model = build_scene((), robot)
    assert [model.joint(j).name for j in robot.joint_ids(model)] == [f"j{i}" for i in range(7)]
    assert [model.joint(j).name for j in robot.finger_joint_ids(model)] == ["jaw"]
    assert np.allclose(robot.home_qpos(model), 0)


def test_home_keyframe_replaces_the_middle_of_the_ranges(tmp_path):
    path = write_arm(tmp_path / "arm.xml", 7)
    path.write_text(
        path.read_text().replace(
            "</mujoco>", '<keyframe><key name="home" qpos="1 2 3 0 -1 -2 -3 0"/></keyframe></mujoco>'
        )
    )
    robot = load_robot_file(path, tool_site="tip", gripper_actuator="squeeze")
    assert robot.home_qpos(build_scene((Item("thing"),), robot)).tolist() == [1, 2, 3, 0, -1, -2, -3]


def test_unusable_arm_gives_one_sentence(tmp_path):
    short = write_arm(tmp_path / "short.xml", 5)
    with pytest.raises(SimError, match=r"short\.xml: 5 hinges have their own position actuator; .* at least 6"):
        load_robot_file(short, tool_site="tip", gripper_actuator="squeeze")
    with pytest.raises(SimError, match=r"unknown tool site of short\.xml 'tool'"):
        load_robot_file(short)
    arm = write_arm(tmp_path / "arm.xml", 7).read_text()
    for valid, invalid, message in (
        ('<joint name="j2" axis="0 0 1" range="-3 3"/>', '<joint name="j2" axis="0 0 1"/>', "joint 'j2' needs a range"),
        ('<position joint="j0" kp="500"/>', '<motor name="m0" joint="j0"/>', "actuator 'm0' must be a <position>"),
        (' ctrlrange="0 .05"', "", "actuator 'squeeze' needs a ctrlrange"),
    ):
        assert valid in arm
        (tmp_path / "odd.xml").write_text(arm.replace(valid, invalid))
        with pytest.raises(SimError, match=rf"odd\.xml: its {message}"):
            load_robot_file(tmp_path / "odd.xml", tool_site="tip", gripper_actuator="squeeze")
    with pytest.raises(SimError, match=r"nowhere\.xml: there is no such file"):
        find_robot(str(tmp_path / "nowhere.xml"))
    (tmp_path / "broken.xml").write_text("<mujoco><worldbody>")
    with pytest.raises(SimError, match=r"broken\.xml: .*XML"):
        find_robot(str(tmp_path / "broken.xml"))
    with pytest.raises(SimError, match=r"unknown robot 'pandaa'\. Did you mean 'panda'\?"):
        find_robot("pandaa")
