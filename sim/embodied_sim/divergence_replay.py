"""A fault played again: the scene of a world that broke down, its last good state, and the control step after that."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from embodied_sim.backends import make_backend
from embodied_sim.control import SUBSTEPS_PER_STEP
from embodied_sim.divergence import Divergence
from embodied_sim.render import make_renderer
from embodied_sim.robots import Robot
from embodied_sim.scene import build_scene
from embodied_sim.task import Task


@dataclass(frozen=True, kw_only=True)
class DivergenceReplay:
    """What was seen of a fault that was played again."""

    images: npt.NDArray[np.uint8]
    """[1 + T, V, H, W, 3]: the last good state, then the end of every time step that went well."""
    reason: str | None
    """Why the world diverged in the time step after these; None: it did not, all of the control step went well."""


def replay_divergence(
    divergence: Divergence, task: Task, robot: Robot, *, views: Sequence[str], image_size: int, backend: str = "batch",
    device: str = "cpu", renderer: str = "auto",
) -> DivergenceReplay:  # fmt: skip
    """Bring a world to where the fault left it and step it, one time step of the physics at a time.

    The caller names task and robot: the fault's own names may be of files, and a fault is data.

    Raises `SimError` for a fault of another scene, and for a view, backend, device or renderer that there is not.
    """
    model = build_scene(task.props, robot)
    rows, images = np.zeros(1, np.int64), []
    with closing(make_backend(backend, model, 1, threads=1, device=device)) as engine:
        divergence.apply_to(engine, 0)
        with closing(make_renderer(renderer, engine, views, image_size, threads=1)) as scene_renderer:
            images.append(scene_renderer.render(rows)[0])
            while len(images) <= SUBSTEPS_PER_STEP and not engine.step(1)[0]:
                images.append(scene_renderer.render(rows)[0])
        return DivergenceReplay(images=np.array(images), reason=engine.divergence_reasons().get(0))
