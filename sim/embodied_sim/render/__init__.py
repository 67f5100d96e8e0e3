"""Images of the worlds of a backend, by OpenGL or, where there is none, by a ray tracer on the CPU.

For the scene author: the two agree (35 dB PSNR or more for each view of every task, by `embodied-rm bench renderers`;
what differs is single pixels at the outlines of round shapes, which OpenGL draws with facets) as long as the scene

* is made of primitive geoms in groups 0-2, opaque (alpha 1, or 0 for hidden), colored by `rgba`: no textures, and no
  material with reflectance, specular or emission;
* is lit by the headlight and directional lights, `specular` 0 for all of them, sums of ambient and diffuse at most 1,
  so that nothing saturates; shadows are drawn by neither;
* shows nothing through sites, tendons or decoration, which neither draws;
* has finite planes or boxes for ground, no skybox, no fog or haze: the background is black;
* keeps everything further from the cameras than the near plane (`vis.map.znear * stat.extent`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from embodied_sim.backends.backend import PhysicsBackend, Rows
from embodied_sim.render.gl_context import GL_PACKAGES, describe_missing_gl, find_gl_platform
from embodied_sim.render.gl_renderer import GLRenderer
from embodied_sim.render.renderer import Renderer, TensorRenderer
from embodied_sim.sim_errors import SimError, lookup

if TYPE_CHECKING:
    from torch import Tensor

Size = int | tuple[int, int]

_GL_INSTALL_HINT = f"install the Debian packages {GL_PACKAGES}"
_WARP_INSTALL_HINT = "pip install 'embodied-rm[warp]'"


def make_renderer(name: str, backend: PhysicsBackend, cameras: Sequence[str], size: Size, threads: int = 0) -> Renderer:
    """A renderer of `backend`'s worlds: "gl", "warp" (the ray tracer), or "auto": for worlds on a GPU the ray tracer
    there, which their images need not leave; for others OpenGL where it works, else the ray tracer.

    `size` is H = W or (H, W) in pixels; `threads` 0 means one a processor. Raises `SimError` for an unknown name
    or camera, and where the renderer asked for cannot work, saying what to install.
    """
    return lookup(RENDERERS, name, "renderer")(backend, cameras, size, threads or len(os.sched_getaffinity(0)))


def render_torch(renderer: Renderer, rows: Rows) -> Tensor:
    """What `renderer.render` gives, as a tensor: on the device that it draws on, else in the memory of the host."""
    if isinstance(renderer, TensorRenderer):
        return renderer.render_torch(rows)
    import torch  # heavy, and nothing else here needs it

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
    error_message = f"{gl_problem} and mujoco_warp is not installed, so no image can be made: {_GL_INSTALL_HINT}, or {_WARP_INSTALL_HINT}"
    return _ray_tracer(backend, cameras, size, error_message, f"; {gl_problem}: for a faster one {_GL_INSTALL_HINT}")


def _ray_tracer(backend: PhysicsBackend, cameras: Sequence[str], size: Size, error_message: str, hint: str) -> Renderer:
    try:
        from embodied_sim.backends.mujoco_warp_backend import WarpBackend  # heavy and optional, likewise the rest
        from embodied_sim.render.ray_tracer import WarpRenderer
        from embodied_sim.render.warp_device import DeviceRenderer
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
