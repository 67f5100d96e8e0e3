"""Physics of the props: button, lever, peg and pegboard."""

import mujoco
import numpy as np
import pytest

from embodied_sim.props import Button, Lever, Peg, Pegboard
from embodied_sim.props.button import BUTTON_REST_Z_M, BUTTON_TRAVEL_M
from embodied_sim.props.peg import BOARD_THICKNESS_M, HOLE_CLEARANCE_M, PEG_SHAFT_HALF_WIDTH_M, PEG_STANDING_Z_M
from embodied_sim.robots import ROBOTS
from embodied_sim.scene import build_scene


def simulate(model: mujoco.MjModel, data: mujoco.MjData, seconds: float = 1.5) -> mujoco.MjData:
    """Advance the simulation."""
    for _ in range(int(seconds / model.opt.timestep)):
        mujoco.mj_step(model, data)
    return data


def test_button_returns_when_released():
    model = build_scene((Button("bell", (0.5, 0.1)),), ROBOTS["panda"])
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    assert data.site("bell").xpos[2] == pytest.approx(BUTTON_REST_Z_M, abs=1e-6)
    data.joint("bell").qpos[0] = BUTTON_TRAVEL_M
    mujoco.mj_forward(model, data)
    assert data.site("bell").xpos[2] == pytest.approx(BUTTON_REST_Z_M - BUTTON_TRAVEL_M, abs=1e-6)
    assert simulate(model, data).site("bell").xpos[2] == pytest.approx(BUTTON_REST_Z_M, abs=1e-3)


@pytest.mark.parametrize("angle", [-1.2, 0.0, 0.7])
def test_lever_keeps_its_angle_and_turns_anticlockwise(angle):
    model = build_scene((Lever(),), ROBOTS["panda"])
    data = mujoco.MjData(model)
    data.joint("lever").qpos[0] = angle
    simulate(model, data)
    assert data.joint("lever").qpos[0] == pytest.approx(angle, abs=0.01)
    arm = data.site("handle").xpos - data.site("pivot").xpos
    assert np.arctan2(-arm[1], -arm[0]) == pytest.approx(angle, abs=0.01)


@pytest.mark.parametrize(("offset", "falls_in"), [(0.0, True), (0.0008, True), (0.005, True), (0.03, False)])
@pytest.mark.parametrize("axis", [0, 1])
def test_peg_falls_in_only_above_the_hole(axis, offset, falls_in):
    model = build_scene((Pegboard(), Peg("peg", "red")), ROBOTS["panda"])
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    start = data.site("hole").xpos.copy()
    start[axis] += offset
    data.joint("peg").qpos[:3] = start + np.array([0.0, 0.0, PEG_STANDING_Z_M + 0.01])
    depth = data.site("hole").xpos[2] - simulate(model, data).site("peg_tip").xpos[2]
    assert (depth > 0.02) == falls_in


@pytest.mark.parametrize("axis", [0, 1])
def test_hole_clearance_is_at_most_two_millimeters(axis):
    """Rays from the center of the hole, at half its depth, hit its walls."""
    model = build_scene((Pegboard(),), ROBOTS["panda"])
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    center = data.site("hole").xpos - [0.0, 0.0, BOARD_THICKNESS_M / 2]
    direction = np.eye(3)[axis]
    hit = np.zeros(1, np.int32)
    width = sum(mujoco.mj_ray(model, data, center, sign * direction, None, 1, -1, hit, None) for sign in (-1, 1))
    assert 0 < width - 2 * PEG_SHAFT_HALF_WIDTH_M <= 0.002 + 1e-9
    assert width - 2 * PEG_SHAFT_HALF_WIDTH_M == pytest.approx(HOLE_CLEARANCE_M)


def test_peg_keeps_standing():
    model = build_scene((Peg("peg", "red"),), ROBOTS["panda"])
    data = simulate(model, mujoco.MjData(model))
    assert data.body("peg").xpos[2] == pytest.approx(PEG_STANDING_Z_M, abs=1e-3)
