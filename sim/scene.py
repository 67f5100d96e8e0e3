"""The tabletop scene: the arm, a table, a cabinet with one drawer, two cubes, three cameras."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np

Point = tuple[float, float, float]
Colour = tuple[float, float, float, float]

HERE = Path(__file__).resolve().parent
ASSETS = HERE / "assets" if (HERE / "assets").is_dir() else HERE.parent / "assets"
"""Inside the installed package, or beside it in a checkout."""

CUBE_HALF = 0.025
"""Half the edge of a cube, m."""
COLOURS = {"red": (0.85, 0.1, 0.1, 1.0), "blue": (0.1, 0.25, 0.9, 1.0)}
"""Cube name -> RGBA; the order is the order of the cube axis in every state array."""
DRAWER_TRAVEL = 0.16
"""How far the drawer slides out, m."""
CABINET = (0.69, 0.2)
"""Nominal x, y of the cabinet's middle on the table, m."""

CAMERAS = {
    "front": ((0.98, -0.42, 0.72), (0.47, 0.02, 0.06), 46.0),
    "side": ((0.42, -0.78, 0.34), (0.5, 0.05, 0.09), 44.0),
}
"""Fixed camera -> position, point it looks at, vertical field of view (degrees). The arm carries "wrist"."""

# Cabinet and tray, half sizes in metres; the drawer opens towards the robot (-x).
_CABINET_HALF = (0.1, 0.1, 0.05)
_WALL = 0.004
_KNOB_Z = 0.075

_WOOD = (0.62, 0.45, 0.28, 1.0)
_TRAY = (0.93, 0.84, 0.66, 1.0)
_KNOB = (0.1, 0.6, 0.3, 1.0)


def build_scene(timestep: float = 0.005) -> mujoco.MjModel:
    """Compile the scene. World frame: robot base at the origin, table top at z = 0, metres."""
    spec = mujoco.MjSpec.from_file(str(ASSETS / "robots" / "panda_primitives.xml"))
    _set_options(spec, timestep)
    _add_table(spec)
    _add_cabinet(spec)
    for name, rgba in COLOURS.items():
        _add_cube(spec, name, rgba)
    return spec.compile()


def _set_options(spec: mujoco.MjSpec, timestep: float) -> None:
    spec.option.timestep = timestep
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.cone = mujoco.mjtCone.mjCONE_PYRAMIDAL
    spec.option.iterations = 20
    spec.option.ls_iterations = 10
    # Matte pictures with a single light, so that GL and ray-traced views agree.
    spec.visual.headlight.ambient = (0.35, 0.35, 0.35)
    spec.visual.headlight.diffuse = (0.3, 0.3, 0.3)
    spec.visual.headlight.specular = (0.0, 0.0, 0.0)
    spec.visual.map.znear = 0.005


def _add_table(spec: mujoco.MjSpec) -> None:
    world = spec.worldbody
    world.add_light(
        name="lamp", type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL, pos=(0.3, -0.6, 2), dir=(0.15, 0.3, -1),
        diffuse=(0.5, 0.5, 0.5), specular=(0, 0, 0), castshadow=False,
    )  # fmt: skip
    world.add_geom(
        name="table", type=mujoco.mjtGeom.mjGEOM_BOX, pos=(0.45, 0, -0.02), size=(0.6, 0.6, 0.02),
        rgba=(0.42, 0.45, 0.48, 1), friction=(1, 0.005, 0.0001),
    )  # fmt: skip
    for name, (position, target, fovy) in CAMERAS.items():
        world.add_camera(name=name, pos=position, xyaxes=_look_at(position, target), fovy=fovy)


def _look_at(position: Point, target: Point) -> list[float]:
    """Camera x and y axes (MuJoCo `xyaxes`) for a camera at `position` that looks at `target`, z up."""
    forward = np.subtract(target, position)
    right = np.cross(forward, (0.0, 0.0, 1.0))
    return [*right, *np.cross(right, forward)]


def _box(body: mujoco.MjsBody, pos: Point, half: Point, rgba: Colour, **kwargs: object) -> None:
    body.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, pos=pos, size=half, rgba=rgba, **kwargs)


def _add_cabinet(spec: mujoco.MjSpec) -> None:
    """A mocap body, so that each world has it in its own place without its own model."""
    hx, hy, hz = _CABINET_HALF
    w = _WALL
    cabinet = spec.worldbody.add_body(name="cabinet", pos=(*CABINET, 0), mocap=True)
    for y in (-hy, hy):
        _box(cabinet, (0, y, hz), (hx, w, hz), _WOOD)
    _box(cabinet, (hx, 0, hz), (w, hy, hz), _WOOD)
    _box(cabinet, (0, 0, 2 * hz), (hx, hy + w, w), _WOOD)
    drawer = cabinet.add_body(name="drawer")
    drawer.add_joint(
        name="drawer", type=mujoco.mjtJoint.mjJNT_SLIDE, axis=(-1, 0, 0), range=(0, DRAWER_TRAVEL),
        damping=4.0, frictionloss=1.5, armature=0.1,
    )  # fmt: skip
    _add_tray(drawer)


def _add_tray(drawer: mujoco.MjsBody) -> None:
    hx, hy, _ = _CABINET_HALF
    w, depth, width, height = _WALL, hx - 0.008, hy - 0.012, 0.04
    _box(drawer, (0, 0, 0.01), (depth, width, w), _TRAY, mass=0.3)
    for y in (-width, width):
        _box(drawer, (0, y, height), (depth, w, height - 0.01), _TRAY, mass=0.05)
    _box(drawer, (depth, 0, height), (w, width, height - 0.01), _TRAY, mass=0.05)
    front = -hx - w
    _box(drawer, (front, 0, 0.046), (w, hy - 0.002, 0.044), _WOOD, mass=0.1)
    # A T-shaped knob: the fingers close on the neck, the cap keeps them from slipping off.
    neck = front - 0.024
    _box(drawer, (neck, 0, _KNOB_Z), (0.022, 0.008, 0.012), _KNOB, mass=0.02)
    _box(drawer, (front - 0.05, 0, _KNOB_Z), (0.005, 0.028, 0.014), _KNOB, mass=0.02)
    drawer.add_site(name="knob", pos=(neck + 0.001, 0, _KNOB_Z), size=(0.004, 0, 0), group=5)
    drawer.add_site(name="tray", pos=(0, 0, 0.03), size=(0.004, 0, 0), group=5)


def _add_cube(spec: mujoco.MjSpec, name: str, rgba: Colour) -> None:
    body = spec.worldbody.add_body(name=name, pos=(0.45, 0, CUBE_HALF))
    body.add_freejoint(name=name)
    body.add_geom(
        name=name, type=mujoco.mjtGeom.mjGEOM_BOX, size=(CUBE_HALF,) * 3, rgba=rgba, mass=0.08,
        friction=(1, 0.005, 0.0001), condim=4, solref=(0.01, 1),
    )  # fmt: skip
