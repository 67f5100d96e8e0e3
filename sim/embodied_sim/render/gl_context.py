"""Find an OpenGL library that works, and create off-screen contexts with it."""

import functools
import importlib
import importlib.util
import os
import subprocess
import sys
from typing import Protocol

GL_PLATFORMS = ("egl", "osmesa")
GL_PACKAGES = "libegl1 and libgl1-mesa-dri (or libosmesa6)"  # Debian packages of software OpenGL

# A library may load but fail to draw (no driver), or crash: therefore a child process tries it.
_PROBE_SCRIPT = """
import importlib, sys, mujoco, numpy
context = importlib.import_module("mujoco." + sys.argv[1]).GLContext(8, 8)
context.make_current()
model = mujoco.MjModel.from_xml_string(
    "<mujoco><visual><quality shadowsize='0' offsamples='0'/></visual><worldbody>"
    "<geom size='1'/><camera pos='0 0 3'/></worldbody></mujoco>")
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
scene, camera, pixels = mujoco.MjvScene(model, 9), mujoco.MjvCamera(), numpy.zeros((8, 8, 3), numpy.uint8)
camera.type, camera.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, 0
mujoco.mjv_updateScene(model, data, mujoco.MjvOption(), None, camera, 7, scene)
drawer, frame = mujoco.MjrContext(model, 100), mujoco.MjrRect(0, 0, 8, 8)
mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, drawer)
mujoco.mjr_render(frame, scene, drawer)
mujoco.mjr_readPixels(pixels, None, frame, drawer)
drawer.free()
context.free()
sys.exit(0 if pixels.any() else 3)
"""


class GLContext(Protocol):
    """An off-screen OpenGL context, as in `mujoco.egl` and `mujoco.osmesa`."""

    def make_current(self) -> None: ...

    def free(self) -> None: ...


@functools.cache
def find_gl_platform() -> str | None:
    """Return the first of `GL_PLATFORMS` that renders an image in a child process, or None.

    The variable `MUJOCO_GL=egl` or `MUJOCO_GL=osmesa` restricts the choice, `MUJOCO_GL=off` leaves none.
    """
    requested = os.environ.get("MUJOCO_GL", "").lower().strip()
    if requested in ("disable", "disabled", "off", "false", "0"):
        return None
    candidates = [requested] if requested in GL_PLATFORMS else GL_PLATFORMS
    return next((platform for platform in candidates if _can_render(platform)), None)


def make_gl_context(platform: str, height: int, width: int) -> GLContext:
    """Create a context and make it current in the calling thread."""
    # MuJoCo and Mesa read these when a context is created. Mesa's rasterizer threads would compete with ours.
    os.environ["MUJOCO_GL"] = platform
    os.environ.setdefault("LP_NUM_THREADS", "0")
    load_triton()
    context: GLContext = importlib.import_module(f"mujoco.{platform}").GLContext(width, height)
    context.make_current()
    return context


def load_triton() -> None:
    """Import Triton, if torch brought it. Mesa and Triton contain LLVM; after Mesa's, loading Triton's crashes.

    torch itself imports Triton at the first step of an optimizer.
    """
    if importlib.util.find_spec("triton") is not None:
        importlib.import_module("triton")


def describe_missing_gl() -> str:
    """Return the message for a machine where `find_gl_platform` returns None."""
    requested = os.environ.get("MUJOCO_GL")
    return "no OpenGL library works here" + (f" (MUJOCO_GL={requested} restricts the choice)" if requested else "")


def _can_render(platform: str) -> bool:
    command = [sys.executable, "-P", "-c", _PROBE_SCRIPT, platform]
    try:
        result = subprocess.run(
            command, env={**os.environ, "MUJOCO_GL": platform}, capture_output=True, timeout=60, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return result.returncode == 0
