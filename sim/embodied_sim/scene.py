"""The tabletop scene: an arm, a table, three cameras and the props of a task."""

from collections.abc import Sequence

import mujoco
import numpy as np

from embodied_sim.props import Prop
from embodied_sim.props.prop import Point
from embodied_sim.robots import Robot

CAMERAS = {
    "front": ((0.98, -0.42, 0.72), (0.47, 0.02, 0.06), 46.0),
    "side": ((0.42, -0.78, 0.34), (0.5, 0.05, 0.09), 44.0),
}
"""Fixed camera -> position, look-at point, vertical field of view (degrees). The arm carries "wrist"."""


def build_scene(props: Sequence[Prop], robot: Robot, timestep: float = 0.005) -> mujoco.MjModel:
    """Compile the scene. World frame: robot base at the origin, table top at z = 0, meters."""
    spec = robot.load_spec()
    _set_options(spec, timestep)
    _add_table(spec)
    for prop in props:
        prop.add(spec)
    return spec.compile()


def _set_options(spec: mujoco.MjSpec, timestep: float) -> None:
    spec.option.timestep = timestep
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.cone = mujoco.mjtCone.mjCONE_PYRAMIDAL
    spec.option.iterations = 20
    spec.option.ls_iterations = 10
    # Matte images with a single light, so that GL and ray-traced views agree.
    spec.visual.headlight.ambient = (0.35, 0.35, 0.35)
    spec.visual.headlight.diffuse = (0.3, 0.3, 0.3)
    spec.visual.headlight.specular = (0.0, 0.0, 0.0)
    spec.visual.map.znear = 0.005


def _add_table(spec: mujoco.MjSpec) -> None:
    worldbody = spec.worldbody
    worldbody.add_light(
        name="lamp", type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL, pos=(0.3, -0.6, 2), dir=(0.15, 0.3, -1),
        diffuse=(0.5, 0.5, 0.5), specular=(0, 0, 0), castshadow=False,
    )  # fmt: skip
    worldbody.add_geom(
        name="table", type=mujoco.mjtGeom.mjGEOM_BOX, pos=(0.45, 0, -0.02), size=(0.6, 0.6, 0.02),
        rgba=(0.42, 0.45, 0.48, 1), friction=(1, 0.005, 0.0001),
    )  # fmt: skip
    for name, (position, target, fovy) in CAMERAS.items():
        worldbody.add_camera(name=name, pos=position, xyaxes=_camera_axes(position, target), fovy=fovy)


def _camera_axes(position: Point, target: Point) -> list[float]:
    """Return the x and y axes (MuJoCo `xyaxes`) of a camera at `position` that looks at `target`, z up."""
    forward = np.subtract(target, position)
    right = np.cross(forward, (0.0, 0.0, 1.0))
    return [*right, *np.cross(right, forward)]
