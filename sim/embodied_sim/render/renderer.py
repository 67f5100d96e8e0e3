"""What the environments need of a renderer: pixels of the worlds asked for, from named cameras."""

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


class Renderer(Protocol):
    """Draws worlds of one backend. It never writes to the backend, and a row's pixels depend on that row alone:
    not on the other rows asked for, nor on the number of threads."""

    def render(self, rows: Rows) -> Frames:
        """The views of the worlds `rows` (int [n], any order) as they are now: uint8 [n, V, H, W, 3], V in the
        order of the cameras."""
        ...

    def describe(self) -> str:
        """One line: what draws, and where something better could be had, how."""
        ...

    def close(self) -> None:
        """Free the contexts. No image can be made afterwards. Twice is once."""
        ...


@runtime_checkable
class TensorRenderer(Renderer, Protocol):
    """A renderer that can leave its images on the device on which it draws them."""

    def render_torch(self, rows: Rows) -> Tensor:
        """What `render` gives, as a tensor on that device."""
        ...


def height_width(size: int | tuple[int, int]) -> tuple[int, int]:
    """(H, W) in pixels from one number (square images) or two. Raises `SimError` unless both are positive."""
    height, width = (size, size) if isinstance(size, int) else size
    if height < 1 or width < 1:
        raise SimError(f"the image size must be at least 1 pixel each way, got {height} x {width} (height x width)")
    return height, width


def camera_ids(model: mujoco.MjModel, names: Sequence[str]) -> list[int]:
    """Ids of the cameras so named. Raises `SimError` for an unknown name or for none at all."""
    id_by_name = {model.camera(index).name: index for index in range(model.ncam)}
    if not names:
        raise SimError(f"at least one camera is needed. Available: {', '.join(sorted(id_by_name))}")
    return [lookup(id_by_name, name, "camera") for name in names]
