"""Replay of a divergence dump: the last valid state and the control step that diverged."""

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
    """Rendered replay of a divergence."""

    images: npt.NDArray[np.uint8]
    """uint8 [1 + T, V, H, W, 3]: the last valid state, then the state after each valid physics step."""
    reason: str | None
    """Reason of the divergence in the next physics step; None: the whole control step was valid."""


def replay_divergence(
    divergence: Divergence, task: Task, robot: Robot, *, views: Sequence[str], image_size: int, backend: str = "batch",
    device: str = "cpu", renderer: str = "auto",
) -> DivergenceReplay:  # fmt: skip
    """Restore a world from a dump and advance it by single physics steps.

    The caller passes task and robot: names in a dump may be file paths, and data never name code.

    Raises:
        SimError: The dump is of another scene, or a view, backend, device or renderer is unknown.
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
