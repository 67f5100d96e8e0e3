"""Rendering of a backend's worlds with OpenGL or, where it is missing, with a CPU ray tracer.

The two agree with a PSNR of at least 35 dB for each view of every task (`embodied-rm bench renderers`). They differ in
single pixels at the outlines of round shapes, which OpenGL draws with facets. The agreement needs a scene that

* consists of primitive geoms in groups 0-2, opaque (alpha 1, or 0 for hidden), colored by `rgba`: no textures, and no
  material with reflectance, specular or emission;
* is lit by the headlight and directional lights with `specular` 0 and sums of ambient and diffuse of at most 1, so
  that nothing saturates; neither renderer draws shadows;
* does not rely on sites, tendons or decoration, which neither renderer draws;
* has finite planes or boxes for ground, no skybox, no fog or haze: the background is black;
* keeps everything beyond the near plane of the cameras (`vis.map.znear * stat.extent`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from embodied_sim.backends.backend import PhysicsBackend, Rows
from embodied_sim.render.gl_context import GL_PACKAGES, describe_missing_gl, find_gl_platform
from embodied_sim.render.gl_renderer import GLRenderer
from embodied_sim.render.renderer import Renderer, Size, TensorRenderer
from embodied_sim.sim_errors import SimError, lookup

if TYPE_CHECKING:
    from torch import Tensor

_GL_INSTALL_HINT = f"install the Debian packages {GL_PACKAGES}"
_WARP_INSTALL_HINT = "pip install 'embodied-rm[warp]'"


def make_renderer(name: str, backend: PhysicsBackend, cameras: Sequence[str], size: Size, threads: int = 0) -> Renderer:
    """Create the renderer "gl", "warp" (ray tracer) or "auto" of a backend's worlds, one view per camera.

    "auto" is the ray tracer for worlds on a GPU, so that images stay there; otherwise OpenGL where it works, else the
    ray tracer. `threads` are those of "gl"; 0: one per processor. Raises `SimError` for an unknown name or camera, or
    if the renderer cannot work; the message says what to install.
    """
    return lookup(RENDERERS, name, "renderer")(backend, cameras, size, threads or len(os.sched_getaffinity(0)))


def render_torch(renderer: Renderer, rows: Rows) -> Tensor:
    """Return `renderer.render(rows)` as a tensor, on the renderer's device if it supports that, else on the CPU."""
    if isinstance(renderer, TensorRenderer):
        return renderer.render_torch(rows)
    import torch  # deferred: heavy, and not needed elsewhere in this module

    return torch.from_numpy(renderer.render(rows))


def _gl(backend: PhysicsBackend, cameras: Sequence[str], size: Size, threads: int) -> Renderer:
    platform = find_gl_platform()
    if platform is None:
        raise SimError(f"{describe_missing_gl()}: {_GL_INSTALL_HINT}, or use the renderer 'warp'")
    return GLRenderer(backend, cameras, size, threads, platform)


def _warp(backend: PhysicsBackend, cameras: Sequence[str], size: Size, threads: int) -> Renderer:
    return _ray_tracer(backend, cameras, size, f"the renderer 'warp' needs mujoco_warp: {_WARP_INSTALL_HINT}", "")


def _auto(backend: PhysicsBackend, cameras: Sequence[str], size: Size, threads: int) -> Renderer:
    if backend.device == "cuda":
        return _warp(backend, cameras, size, threads)
    if find_gl_platform() is not None:
        return _gl(backend, cameras, size, threads)
    gl_problem = describe_missing_gl()
    remedy = f"{_GL_INSTALL_HINT}, or {_WARP_INSTALL_HINT}"
    error_message = f"{gl_problem} and mujoco_warp is not installed, so images cannot be rendered: {remedy}"
    return _ray_tracer(backend, cameras, size, error_message, f"; {gl_problem}: for faster images {_GL_INSTALL_HINT}")


def _ray_tracer(backend: PhysicsBackend, cameras: Sequence[str], size: Size, error_message: str, hint: str) -> Renderer:
    try:
        from embodied_sim.backends.mujoco_warp_backend import WarpBackend  # heavy and optional, likewise the rest
        from embodied_sim.render.ray_tracer import DeviceRenderer, WarpRenderer
    except ModuleNotFoundError as error:
        raise SimError(error_message) from error
    if isinstance(backend, WarpBackend) and backend.device == "cuda":
        return DeviceRenderer(backend, cameras, size)
    return WarpRenderer(backend, cameras, size, hint)


RENDERERS: Mapping[str, Callable[[PhysicsBackend, Sequence[str], Size, int], Renderer]] = {
    "auto": _auto,
    "gl": _gl,
    "warp": _warp,
}

__all__ = ["RENDERERS", "Renderer", "make_renderer", "render_torch"]
