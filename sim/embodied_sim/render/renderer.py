"""Interface of renderers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import mujoco
import numpy as np
import numpy.typing as npt

from embodied_sim.backends.backend import Rows
from embodied_sim.sim_errors import SimError, lookup

if TYPE_CHECKING:
    from torch import Tensor

Frames = npt.NDArray[np.uint8]
Size = int | tuple[int, int]  # H = W, or (H, W), pixels


class Renderer(Protocol):
    """Renders worlds of one backend, without writing to it.

    The pixels of a row depend on that row only: not on the other requested rows, nor on the number of threads.
    """

    def render(self, rows: Rows) -> Frames:
        """Render the current views of the worlds `rows` (int [n], any order): uint8 [n, V, H, W, 3]."""
        ...

    def describe(self) -> str:
        """Return one line: the renderer, and a hint if a faster one could be installed."""
        ...

    def close(self) -> None:
        """Free the contexts. Nothing can be rendered afterwards. May be called twice."""
        ...


@runtime_checkable
class TensorRenderer(Renderer, Protocol):
    """Renderer that can return its images on the device on which it draws them."""

    def render_torch(self, rows: Rows) -> Tensor:
        """Return `render(rows)` as a tensor on that device."""
        ...


def height_width(size: Size) -> tuple[int, int]:
    """Return (H, W) in pixels from one number (square) or two. Raises `SimError` unless both are positive."""
    height, width = (size, size) if isinstance(size, int) else size
    if height < 1 or width < 1:
        raise SimError(f"the image size must be at least 1 pixel each way, got {height} x {width} (height x width)")
    return height, width


def camera_ids(model: mujoco.MjModel, names: Sequence[str]) -> list[int]:
    """Return the ids of named cameras. Raises `SimError` for an unknown name, or without any name."""
    id_by_name = {model.camera(index).name: index for index in range(model.ncam)}
    if not names:
        raise SimError(f"at least one camera is needed. Available: {', '.join(sorted(id_by_name))}")
    return [lookup(id_by_name, name, "camera") for name in names]
