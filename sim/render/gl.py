"""OpenGL pictures: one context a thread, each world drawn whole by whichever thread is free.

Everything whose cost exceeds what it adds to a small picture is off: shadow map, multisampling, reflections, skybox.
Boxes and planes are drawn as single quads (under directional light the picture is the same), and round shapes get as
many facets as the picture can show (`flat`): on a software rasteriser vertices are what a small picture costs.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from functools import partial

import mujoco
import numpy as np

from sim.backends.base import VISIBLE, Array, Backend, Rows
from sim.render.base import Frames, camera_ids, height_width
from sim.render.flat import FlatScene, is_plain
from sim.render.opengl import PLATFORMS, new_context
from sim.render.worker import Worker

_GEOMS = int(mujoco.mjtCatBit.mjCAT_STATIC | mujoco.mjtCatBit.mjCAT_DYNAMIC)


class GLRenderer:
    """`Renderer` on OpenGL. `platform` is what `working_platform` found."""

    def __init__(
        self, backend: Backend, cameras: Sequence[str], size: int | tuple[int, int], threads: int, platform: str
    ) -> None:
        assert platform in PLATFORMS, platform
        self._backend = backend
        self._platform = platform
        self._cameras = camera_ids(backend.model, cameras)
        self._size = height_width(size)
        easel = partial(_easel, backend.model, self._cameras, self._size, platform)
        self._workers = [Worker(easel) for _ in range(threads)]

    def render(self, rows: Rows) -> Frames:
        out = np.empty((len(rows), len(self._cameras), *self._size, 3), np.uint8)
        todo = iter(range(len(rows)))
        jobs = [w.submit(partial(self._draw, rows, todo, out)) for w in self._workers[: len(rows)]]
        wait(jobs)
        for job in jobs:
            job.result()
        return out

    def describe(self) -> str:
        return f"OpenGL ({self._platform}), {len(self._workers)} threads"

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()

    def _draw(self, rows: Rows, todo: Iterator[int], out: Frames, easel: Easel) -> None:
        """Draw rows until none is left; `todo` is shared by the threads (taking from it is atomic)."""
        b = self._backend
        apart = {name: values for name, values in b.varied.items() if name in VISIBLE}
        for i in todo:
            row = rows[i]
            looks = {name: values[row] for name, values in apart.items()}
            easel.draw(b.qpos[row], b.mocap_pos[row], b.mocap_quat[row], looks, out[i])


class Easel:
    """What one thread draws with. Make it with a context current, use it under the same one."""

    def __init__(self, model: mujoco.MjModel, cameras: Sequence[int], size: tuple[int, int]) -> None:
        self._model = model = small_picture_model(model, *size)  # the looks of one world are written into it
        self._data = mujoco.MjData(model)
        self._flat = FlatScene(model, model.vis.quality.numslices) if is_plain(model) else None
        self._drawn = drawn = self._flat.model if self._flat else model
        self._scene = mujoco.MjvScene(drawn, maxgeom=model.ngeom)
        self._scene.flags[:] = 0
        self._scene.flags[mujoco.mjtRndFlag.mjRND_CULL_FACE] = 1
        self._option = _geoms_only()
        self._cameras = [_fixed(index) for index in cameras]
        self._frame = mujoco.MjrRect(0, 0, size[1], size[0])
        self._upside_down = np.empty((*size, 3), np.uint8)
        self._context = mujoco.MjrContext(drawn, mujoco.mjtFontScale.mjFONTSCALE_100)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)

    def draw(self, qpos: Array, mocap_pos: Array, mocap_quat: Array, looks: Mapping[str, Array], out: Frames) -> None:
        """The views of one world into `out`, uint8 [V, H, W, 3]; `looks`: its own values of model fields."""
        model, data, scene = self._model, self._data, self._scene
        for name, value in looks.items():
            getattr(model, name)[:] = getattr(self._drawn, name)[:] = value
        data.qpos[:], data.mocap_pos[:], data.mocap_quat[:] = qpos, mocap_pos, mocap_quat
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_camlight(model, data)
        shown = self._flat.follow(data) if self._flat else data
        for view, camera in enumerate(self._cameras):
            # A whole update a view, not only the camera's: it moves the headlight too, and costs 5 us of 500.
            mujoco.mjv_updateScene(self._drawn, shown, self._option, None, camera, _GEOMS, scene)
            mujoco.mjr_render(self._frame, scene, self._context)
            mujoco.mjr_readPixels(self._upside_down, None, self._frame, self._context)
            out[view] = self._upside_down[::-1]

    def free(self) -> None:
        self._context.free()


@contextmanager
def _easel(model: mujoco.MjModel, cameras: Sequence[int], size: tuple[int, int], platform: str) -> Iterator[Easel]:
    context = new_context(platform, *size)
    try:
        easel = Easel(model, cameras, size)
        try:
            yield easel
        finally:
            easel.free()
    finally:
        context.free()


def small_picture_model(model: mujoco.MjModel, height: int, width: int) -> mujoco.MjModel:
    """A copy of `model` whose `vis` fields cost no more than an H x W picture can show."""
    model = copy.copy(model)
    quality, frame = model.vis.quality, model.vis.global_
    frame.offheight, frame.offwidth = height, width
    quality.shadowsize = quality.offsamples = 0
    quality.numquads = 1
    # A circle across half the picture then leaves its polygon by at most 0.05 pixels; MuJoCo's own count is the cap.
    slices = round(3.5 * max(height, width) ** 0.5)
    quality.numslices = min(quality.numslices, max(slices, 8))
    quality.numstacks = min(quality.numstacks, max(slices // 2, 4))
    return model


def _geoms_only() -> mujoco.MjvOption:
    """Draw what the ray tracer draws too: geoms, with their textures; no sites, tendons or decoration."""
    option = mujoco.MjvOption()
    option.flags[:] = 0
    option.flags[mujoco.mjtVisFlag.mjVIS_STATIC] = 1
    option.flags[mujoco.mjtVisFlag.mjVIS_TEXTURE] = 1
    option.sitegroup[:] = 0
    return option


def _fixed(index: int) -> mujoco.MjvCamera:
    camera = mujoco.MjvCamera()
    camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
    camera.fixedcamid = index
    return camera
