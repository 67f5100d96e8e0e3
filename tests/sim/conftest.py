"""A small MuJoCo model for the simulator's tests: an arm-like chain, touching boxes, a mocap body, 3 cameras."""

from __future__ import annotations

import mujoco
import pytest

LINKS = "".join(
    f"""<body pos="0 0 {0.1 if i == 0 else 0.15}">
    <joint name="joint{i}" axis="{axis}" range="-2.6 2.6" damping="1" armature=".1"/>
    <geom type="capsule" size=".04" fromto="0 0 0 0 0 .12" mass="1" rgba=".8 .8 .85 1"/>"""
    for i, axis in enumerate(["0 0 1", "0 1 0", "0 0 1", "0 1 0"])
)
HAND = """<body pos="0 0 .15"><geom type="box" size=".03 .08 .02" mass=".5" rgba=".2 .2 .25 1"/><site name="tool"/>
    <camera name="wrist" pos=".2 0 .3" xyaxes="0 1 0 -1 0 0" fovy="70"/></body>"""
CUBES = "".join(
    f"""<body name="cube{i}" pos="{0.35 + 0.06 * i} .02 {0.03 + 0.055 * i}"><freejoint/>
    <geom type="box" size=".025 .025 .025" mass=".1" rgba="{rgba}"/></body>"""
    for i, rgba in enumerate([".85 .1 .1 1", ".1 .25 .9 1", ".1 .7 .2 1"])
)
WORLD = f"""<mujoco><option timestep=".005" integrator="implicitfast"/>
<visual><headlight ambient=".3 .3 .3" diffuse=".3 .3 .3" specular="0 0 0"/></visual>
<worldbody><light type="directional" dir=".2 .3 -1" diffuse=".4 .4 .4" specular="0 0 0" castshadow="false"/>
<geom type="box" size="1 1 .05" pos="0 0 -.05" rgba=".5 .5 .55 1"/>
<camera name="front" pos="1.3 0 .8" xyaxes="0 1 0 -.5 0 .86"/>
<camera name="side" pos=".4 -1.1 .6" xyaxes="1 0 0 0 .5 .86"/>
<body name="crate" mocap="true" pos=".3 .4 .05"><geom type="box" size=".05 .05 .05" rgba=".6 .45 .3 1"/></body>
{LINKS}{HAND}{"</body>" * 4}{CUBES}</worldbody>
<actuator>{"".join(f'<position joint="joint{i}" kp="200" kv="20"/>' for i in range(4))}</actuator></mujoco>"""


@pytest.fixture(scope="session")
def model() -> mujoco.MjModel:
    """Compile the model. qpos: 4 joint angles, then 3 cubes of 7; actuators: joint targets; mocap: the crate."""
    return mujoco.MjModel.from_xml_string(WORLD)
