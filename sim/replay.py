"""A fault played again: the scene of a world that broke down, its last good state, and the control step after that."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sim.backends import make_backend
from sim.control import SUBSTEPS
from sim.faults import Fault
from sim.render import make_renderer
from sim.robots import Robot
from sim.scene import build_scene
from sim.task import Task


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What was seen of a fault that was played again."""

    pictures: npt.NDArray[np.uint8]
    """[1 + T, V, H, W, 3]: the last good state, then the end of every time step that went well."""
    why: str | None
    """Why the world diverged in the time step after these; None: it did not, all of the control step went well."""


def replay(
    fault: Fault, task: Task, robot: Robot, *, views: Sequence[str], image_size: int, backend: str = "batch",
    device: str = "cpu", renderer: str = "auto",
) -> Replay:  # fmt: skip
    """Bring a world to where the fault left it and step it, one time step of the physics at a time.

    The caller names task and robot: the fault's own names may be of files, and a fault is data.

    Raises `SimError` for a fault of another scene, and for a view, backend, device or renderer that there is not.
    """
    model = build_scene(task.props, robot)
    rows, pictures = np.zeros(1, np.int64), []
    with closing(make_backend(backend, model, 1, threads=1, device=device)) as worlds:
        fault.put(worlds, 0)
        with closing(make_renderer(renderer, worlds, views, image_size, threads=1)) as camera:
            pictures.append(camera.render(rows)[0])
            while len(pictures) <= SUBSTEPS and not worlds.step(1)[0]:
                pictures.append(camera.render(rows)[0])
        return Replay(pictures=np.array(pictures), why=worlds.faults().get(0))
