"""OpenGL rendering with one context per thread; each world is drawn by the next free thread.

Features that cost more than they add to a small image are off: shadow map, multisampling, reflections, skybox. Boxes
and planes are single quads (under directional light the image is the same). Round shapes have as many facets as the
image can show (`flat_scene`), because vertices dominate the cost of small images in software rasterizers.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from functools import partial

import mujoco
import numpy as np

from embodied_sim.backends.backend import VISUAL_FIELDS, Array, PhysicsBackend, Rows
from embodied_sim.render.flat_scene import FlatScene, is_primitive_only
from embodied_sim.render.frustum import Frustums
from embodied_sim.render.gl_context import GL_PLATFORMS, make_gl_context
from embodied_sim.render.renderer import Frames, Size, camera_ids, height_width
from embodied_sim.render.resource_thread import ResourceThread

_GEOM_CATEGORIES = int(mujoco.mjtCatBit.mjCAT_STATIC | mujoco.mjtCatBit.mjCAT_DYNAMIC)


class GLRenderer:
    """`Renderer` on OpenGL. `platform` is the result of `find_gl_platform`."""

    def __init__(
        self, backend: PhysicsBackend, cameras: Sequence[str], size: Size, threads: int, platform: str
    ) -> None:
        assert platform in GL_PLATFORMS, platform
        self._backend = backend
        self._platform = platform
        self._cameras = camera_ids(backend.model, cameras)
        self._size = height_width(size)
        open_context = partial(_open_draw_context, backend.model, self._cameras, self._size, platform)
        self._workers = [ResourceThread(open_context) for _ in range(threads)]

    def render(self, rows: Rows) -> Frames:
        out = np.empty((len(rows), len(self._cameras), *self._size, 3), np.uint8)
        pending = iter(range(len(rows)))
        jobs = [worker.submit(partial(self._draw, rows, pending, out)) for worker in self._workers[: len(rows)]]
        wait(jobs)
        for job in jobs:
            job.result()
        return out

    def describe(self) -> str:
        return f"OpenGL ({self._platform}), {len(self._workers)} threads"

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()

    def _draw(self, rows: Rows, pending: Iterator[int], out: Frames, draw_context: DrawContext) -> None:
        """Draw rows until none is left; the threads share `pending`, whose `next` is atomic."""
        backend = self._backend
        visual_fields = {name: values for name, values in backend.expanded_fields.items() if name in VISUAL_FIELDS}
        for i in pending:
            row = rows[i]
            field_values = {name: values[row] for name, values in visual_fields.items()}
            draw_context.draw(backend.qpos[row], backend.mocap_pos[row], backend.mocap_quat[row], field_values, out[i])


class DrawContext:
    """Drawing state of one thread. Create and use it with the same OpenGL context current."""

    def __init__(self, model: mujoco.MjModel, cameras: Sequence[int], size: tuple[int, int]) -> None:
        # `draw` writes model fields of single worlds into this copy.
        self._model = model = low_resolution_model(model, *size)
        self._data = mujoco.MjData(model)
        self._flat = FlatScene(model, model.vis.quality.numslices) if is_primitive_only(model) else None
        self._draw_model = draw_model = self._flat.model if self._flat else model
        self._scene = mujoco.MjvScene(draw_model, maxgeom=model.ngeom)
        self._scene.flags[:] = 0
        self._scene.flags[mujoco.mjtRndFlag.mjRND_CULL_FACE] = 1
        self._option = _geom_options()
        self._cameras = [_fixed_camera(index) for index in cameras]
        self._frustums = Frustums(draw_model, cameras, *size)
        self._viewport = mujoco.MjrRect(0, 0, size[1], size[0])
        self._flipped_buffer = np.empty((*size, 3), np.uint8)
        self._context = mujoco.MjrContext(draw_model, mujoco.mjtFontScale.mjFONTSCALE_100)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)

    def draw(
        self, qpos: Array, mocap_pos: Array, mocap_quat: Array, field_values: Mapping[str, Array], out: Frames
    ) -> None:
        """Draw the views of one world into `out`, uint8 [V, H, W, 3]; `field_values`: its own model fields."""
        model, data, scene = self._model, self._data, self._scene
        for name, value in field_values.items():
            getattr(model, name)[:] = getattr(self._draw_model, name)[:] = value
        data.qpos[:], data.mocap_pos[:], data.mocap_quat[:] = qpos, mocap_pos, mocap_quat
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_camlight(model, data)
        draw_data = self._flat.update(data) if self._flat else data
        groups = self._frustums.geom_groups(self._draw_model, draw_data)
        for view, camera in enumerate(self._cameras):
            self._draw_model.geom_group[:] = groups[view]
            # A full update per view, not only of the camera: it also moves the headlight, and costs 5 of 500 us.
            mujoco.mjv_updateScene(self._draw_model, draw_data, self._option, None, camera, _GEOM_CATEGORIES, scene)
            mujoco.mjr_render(self._viewport, scene, self._context)
            mujoco.mjr_readPixels(self._flipped_buffer, None, self._viewport, self._context)
            out[view] = self._flipped_buffer[::-1]

    def free(self) -> None:
        self._context.free()


@contextmanager
def _open_draw_context(
    model: mujoco.MjModel, cameras: Sequence[int], size: tuple[int, int], platform: str
) -> Iterator[DrawContext]:
    context = make_gl_context(platform, *size)
    try:
        draw_context = DrawContext(model, cameras, size)
        try:
            yield draw_context
        finally:
            draw_context.free()
    finally:
        context.free()


def low_resolution_model(model: mujoco.MjModel, height: int, width: int) -> mujoco.MjModel:
    """Return a copy of `model` whose `vis` settings have no more detail than an H x W image can show."""
    model = copy.copy(model)
    quality, global_settings = model.vis.quality, model.vis.global_
    global_settings.offheight, global_settings.offwidth = height, width
    quality.shadowsize = quality.offsamples = 0
    quality.numquads = 1
    # A circle across half the image then deviates from its polygon by at most 0.05 pixels.
    slices = round(3.5 * max(height, width) ** 0.5)
    quality.numslices = min(quality.numslices, max(slices, 8))
    quality.numstacks = min(quality.numstacks, max(slices // 2, 4))
    return model


def _geom_options() -> mujoco.MjvOption:
    """Return options that draw the same as the ray tracer: textured geoms; no sites, tendons or decoration."""
    option = mujoco.MjvOption()
    option.flags[:] = 0
    option.flags[mujoco.mjtVisFlag.mjVIS_STATIC] = 1
    option.flags[mujoco.mjtVisFlag.mjVIS_TEXTURE] = 1
    option.sitegroup[:] = 0
    return option


def _fixed_camera(index: int) -> mujoco.MjvCamera:
    camera = mujoco.MjvCamera()
    camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
    camera.fixedcamid = index
    return camera
