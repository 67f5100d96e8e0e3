"""Ray tracing of `mujoco_warp` worlds on their own device, without a copy through the host."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import warp

from embodied_sim.backends.backend import Rows
from embodied_sim.backends.mujoco_warp_backend import WarpBackend
from embodied_sim.render.ray_tracer import make_tracer, trace_worlds
from embodied_sim.render.renderer import Frames, camera_ids, height_width


class DeviceRenderer:
    """`Renderer` that reads the arrays of a `WarpBackend`. It always draws all worlds, whatever rows are requested.

    The images equal those of `WarpRenderer`. Tested on the `cpu` device; "cuda" has not been run.
    """

    def __init__(self, backend: WarpBackend, cameras: Sequence[str], size: int | tuple[int, int]) -> None:
        self._backend = backend
        self._cameras = camera_ids(backend.model, cameras)
        self._size = height_width(size)
        with warp.ScopedDevice(backend.device):
            self._tracer = make_tracer(backend.model, backend.num_worlds, self._cameras, self._size)

    def render(self, rows: Rows) -> Frames:
        return self.render_torch(rows).cpu().numpy()

    def render_torch(self, rows: Rows) -> torch.Tensor:
        """Return `render(rows)` as a tensor on the device of the worlds; it owns its memory."""
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
