"""Rendering without OpenGL: the batch ray tracer of mujoco_warp, on Warp's `cpu` device or on that of the worlds.

The first use on a machine compiles kernels for about ten seconds, each new kind of scene for one or two; kernels are
cached.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

import mujoco
import mujoco_warp
import numpy as np
import warp

from embodied_sim.backends.backend import VISUAL_FIELDS, PhysicsBackend, Rows
from embodied_sim.backends.mujoco_warp_backend import WarpBackend
from embodied_sim.render.renderer import Frames, Size, camera_ids, height_width

if TYPE_CHECKING:
    from torch import Tensor

CHUNK_SIZE = 8
"""Worlds per launch. The tracer always draws all of them, so more would waste time on few rows, and fewer launch more
kernels. Measured on the tabletop scene: 4 cost 3 % more than 8, and 16 as much as 8."""


class WarpRenderer:
    """`Renderer` by ray tracing on one thread."""

    def __init__(self, backend: PhysicsBackend, cameras: Sequence[str], size: Size, hint: str = "") -> None:
        """Build the tracer. `hint`: appended by `describe`, e.g. how to install a faster renderer."""
        self._backend = backend
        self._hint = hint
        self._cameras = camera_ids(backend.model, cameras)
        self._size = height_width(size)
        warp.config.log_level = warp.LOG_WARNING  # suppresses the banner and the list of loaded modules
        with warp.ScopedDevice("cpu"):
            self._tracer_state = _make_tracer_state(backend.model, self._cameras, self._size)

    def render(self, rows: Rows) -> Frames:
        out = np.empty((len(rows), len(self._cameras), *self._size, 3), np.uint8)
        with warp.ScopedDevice("cpu"):
            for start in range(0, len(rows), CHUNK_SIZE):
                chunk = slice(start, start + CHUNK_SIZE)
                self._push(rows[chunk])
                out[chunk] = self._trace()[: len(rows[chunk])]
        return out

    def describe(self) -> str:
        return f"ray tracer on the CPU (mujoco_warp), 1 thread{self._hint}"

    def close(self) -> None:
        self.__dict__.pop("_tracer_state", None)

    def _push(self, rows: Rows) -> None:
        """Copy the poses and visual fields of the worlds `rows` to the first worlds of the tracer."""
        backend, (model, data, _) = self._backend, self._tracer_state
        for name, values in backend.expanded_fields.items():
            if name in VISUAL_FIELDS:
                getattr(model, name).numpy()[: len(rows)] = values[rows]
        for name in ("qpos", "mocap_pos", "mocap_quat"):
            target = getattr(data, name)
            if target.size:
                target.numpy()[: len(rows)] = getattr(backend, name)[rows]  # on the cpu device numpy() is a view

    def _trace(self) -> Frames:
        """Render the pushed worlds: uint8 [CHUNK_SIZE, V, H, W, 3]."""
        model, data, tracer = self._tracer_state
        mujoco_warp.kinematics(model, data)
        mujoco_warp.com_pos(model, data)
        mujoco_warp.camlight(model, data)
        trace_worlds(model, data, tracer)
        # One uint32 per pixel, 0xAARRGGBB: blue comes first in memory.
        pixels = tracer.rgb_data.numpy().view(np.uint8).reshape(CHUNK_SIZE, len(self._cameras), *self._size, 4)
        return pixels[..., 2::-1]


class DeviceRenderer:
    """`Renderer` that reads the arrays of a `WarpBackend`. It always draws all worlds, whatever rows are requested.

    The images equal those of `WarpRenderer`. Tested on the `cpu` device; "cuda" has not been run.
    """

    def __init__(self, backend: WarpBackend, cameras: Sequence[str], size: Size) -> None:
        self._backend = backend
        self._cameras = camera_ids(backend.model, cameras)
        self._size = height_width(size)
        with warp.ScopedDevice(backend.device):
            self._tracer = make_tracer(backend.model, backend.num_worlds, self._cameras, self._size)

    def render(self, rows: Rows) -> Frames:
        return self.render_torch(rows).cpu().numpy()

    def render_torch(self, rows: Rows) -> Tensor:
        """Return `render(rows)` as a tensor on the device of the worlds; it owns its memory."""
        import torch  # deferred: heavy, and not needed elsewhere in this module

        backend = self._backend
        backend.sync_kinematics()
        with warp.ScopedDevice(backend.device):
            trace_worlds(backend.warp_model, backend.warp_data, self._tracer)
        # One uint32 per pixel, 0xAARRGGBB: blue comes first in memory.
        pixels = warp.to_torch(self._tracer.rgb_data.view(warp.int32)).view(torch.uint8)
        pixels = pixels.reshape(backend.num_worlds, len(self._cameras), *self._size, 4)
        selected = pixels.index_select(0, torch.as_tensor(rows, device=pixels.device))
        return selected[..., :3].flip(-1)

    def describe(self) -> str:
        return f"ray tracer on the device {self._backend.device} (mujoco_warp)"

    def close(self) -> None:
        self.__dict__.pop("_tracer", None)


def make_tracer(
    model: mujoco.MjModel, num_worlds: int, cameras: Sequence[int], size: tuple[int, int]
) -> mujoco_warp.RenderContext:
    """Create a ray tracer of `num_worlds` worlds, camera ids and image size (H, W) on the current device."""
    outputs = {"render_rgb": True, "render_depth": False, "render_seg": False}
    # Precomputed rays would use the model's `cam_fovy` in every world.
    views = {"cam_res": (size[1], size[0]), "cam_active": list(cameras), "use_precomputed_rays": False}
    return mujoco_warp.create_render_context(model, nworld=num_worlds, **outputs, **views)


def trace_worlds(model: mujoco_warp.Model, data: mujoco_warp.Data, tracer: mujoco_warp.RenderContext) -> None:
    """Render all worlds into `tracer.rgb_data`; the poses of geoms, cameras and lights must be current."""
    mujoco_warp.refit_bvh(model, data, tracer)
    mujoco_warp.render(model, data, tracer)


def _make_tracer_state(
    model: mujoco.MjModel, cameras: Sequence[int], size: tuple[int, int]
) -> tuple[mujoco_warp.Model, mujoco_warp.Data, mujoco_warp.RenderContext]:
    """Put the model, `CHUNK_SIZE` worlds and the ray tracer on the current device."""
    # No physics runs here: drop options that mujoco_warp does not support.
    model = copy.copy(model)
    model.opt.disableflags = model.opt.enableflags = 0
    model.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
    model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    tracer = make_tracer(model, CHUNK_SIZE, cameras, size)
    batch_sizes = dict.fromkeys(VISUAL_FIELDS, CHUNK_SIZE)
    data = mujoco_warp.make_data(model, nworld=CHUNK_SIZE, nconmax=1, njmax=1)
    return mujoco_warp.put_model(model, batch_sizes=batch_sizes), data, tracer
