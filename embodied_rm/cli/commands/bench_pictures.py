"""`embodied-rm bench pictures`: how alike OpenGL and the ray tracer draw, and what a model makes of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from embodied_rm.cli.benchmarks import machine, put_section
from embodied_rm.cli.command import Command
from embodied_rm.cli.places import REWARD_MODEL, checkpoint_in
from embodied_rm.errors import UserError
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.fold import fold
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.run import Reporter, RunFolder
from embodied_rm.types import Array, Episode, Frames
from sim.bench.arms import every_arm
from sim.bench.pictures import DrawnTwice, draw_twice
from sim.control import CONTROL_HZ

Row = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class BenchPicturesConfig:
    """What is drawn twice."""

    tasks: tuple[str, ...] = ()
    checkpoint: Path | None = None
    worlds: int = 4
    every: int = 10
    image_size: int = 64
    page: Path | None = None

    def __post_init__(self) -> None:
        every_arm(self.tasks)
        for name in ("worlds", "every", "image_size"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be >= 1, got {getattr(self, name)}")


def start(config: BenchPicturesConfig, run: RunFolder, reporter: Reporter) -> None:
    """Draw, compare, judge; leave the numbers and perhaps a section of a page."""
    model = None if config.checkpoint is None else load_progress_net(checkpoint_in(config.checkpoint, REWARD_MODEL))
    cells = every_arm(config.tasks)
    rows = dict(reporter.track(compared(config, cells, model), "pictures", total=len(cells)))
    for (task, robot), row in rows.items():
        reporter.table(f"{task}, {robot}", dict(row))
    told = [{"task": task, "robot": robot, **row} for (task, robot), row in rows.items()]
    run.write_json("metrics.json", {"bench": {"machine": machine(), "pictures": told}})
    if config.page is not None:
        judged = "" if model is None else ", judged"
        put_section(config.page, f"bench pictures{judged}", section(config, rows))


def compared(
    config: BenchPicturesConfig, cells: list[tuple[str, str]], model: ProgressNet | None
) -> Iterator[tuple[tuple[str, str], Row]]:
    """Cell by cell, the PSNR of each view, dB, and how far a model's progress goes apart."""
    for task, robot in cells:
        drawn = draw_twice(task, robot, worlds=config.worlds, every=config.every, size=config.image_size)
        row = {**{f"{view}_psnr_db": value for view, value in drawn.psnr().items()}, "lowest_db": drawn.lowest()}
        yield (task, robot), row if model is None else {**row, **apart(model, drawn)}


def apart(model: ProgressNet, drawn: DrawnTwice) -> Row:
    """Mean and largest difference of the model's progress between the two, over all worlds and moments."""
    difference = np.abs(progress(model, drawn, drawn.gl) - progress(model, drawn, drawn.traced))
    return {"progress_mean_apart": float(difference.mean()), "progress_most_apart": float(difference.max())}


def progress(model: ProgressNet, drawn: DrawnTwice, frames: Frames) -> Array:
    """The model's progress [N, T] over frames [T, N, V, H, W, 3]."""
    known = [(view, v) for v, view in enumerate(drawn.views) if view in model.config.views]
    episodes = [
        Episode(
            name=f"world {n}",
            views={view: frames[:, n, v] for view, v in known},
            instruction=instruction,
            fps=CONTROL_HZ,
        )
        for n, instruction in enumerate(drawn.instructions)
    ]
    return np.array([curve.value for curve in fold(model, episodes)])


def section(config: BenchPicturesConfig, rows: Mapping[tuple[str, str], Row]) -> str:
    """The results as Markdown."""
    columns = list(next(iter(rows.values())))
    lines = [
        "## OpenGL and the ray tracer" + ("" if config.checkpoint is None else ", judged by a reward model"),
        "",
        f"`embodied-rm bench pictures`: {config.worlds} expert episodes, seen every {config.every} steps at "
        f"{config.image_size}x{config.image_size}; PSNR over all pictures of a view, and the lowest of "
        "any moment and view.",
        "",
        f"| task | arm | {' | '.join(column.replace('_', ' ') for column in columns)} |",
        "|---|---|" + "---|" * len(columns),
    ]
    lines += [
        f"| {task} | {robot} | {' | '.join(shown(column, row[column]) for column in columns)} |"
        for (task, robot), row in rows.items()
    ]
    return "\n".join(lines)


def shown(column: str, value: float) -> str:
    """A cell of the table."""
    return f"{value:.1f}" if column.endswith("_db") else f"{value:.3f}"


COMMAND = Command(schema=BenchPicturesConfig, start=start)
