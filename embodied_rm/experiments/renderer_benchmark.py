"""`embodied-rm bench renderers`: image differences of OpenGL and the ray tracer, and their effect on a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from embodied_rm.command import Command
from embodied_rm.errors import UserError
from embodied_rm.experiments.results_page import describe_machine, write_section
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.scoring import score_episodes
from embodied_rm.paths import CHECKPOINT_DIR, resolve_checkpoint
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.types import Array, Episode, Frames
from embodied_sim.bench.expert_success import task_robot_pairs
from embodied_sim.bench.renderer_parity import RendererComparison, compare_renderers
from embodied_sim.control import CONTROL_HZ

RendererRow = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class BenchRenderersConfig:
    """Config of `bench renderers`."""

    tasks: tuple[str, ...] = ()
    checkpoint: Path | None = None
    num_envs: int = 4
    frame_stride: int = 10
    image_size: int = 64
    results_page: Path | None = None

    def __post_init__(self) -> None:
        task_robot_pairs(self.tasks)
        for name in ("num_envs", "frame_stride", "image_size"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be >= 1, got {getattr(self, name)}")


def main(config: BenchRenderersConfig, run: RunFolder, reporter: Reporter) -> None:
    """Render, compare and score; write the metrics and, if set, a section of the results page."""
    model = (
        None if config.checkpoint is None else load_progress_net(resolve_checkpoint(config.checkpoint, CHECKPOINT_DIR))
    )
    cells = task_robot_pairs(config.tasks)
    rows = dict(reporter.track(compare_cells(config, cells, model), "images", total=len(cells)))
    for (task, robot), row in rows.items():
        reporter.table(f"{task}, {robot}", dict(row))
    records = [{"task": task, "robot": robot, **row} for (task, robot), row in rows.items()]
    run.write_json("metrics.json", {"bench": {"machine": describe_machine(), "renderers": records}})
    if config.results_page is not None:
        suffix = "" if model is None else ", scored"
        write_section(config.results_page, f"bench renderers{suffix}", markdown_section(config, rows))


def compare_cells(
    config: BenchRenderersConfig, cells: list[tuple[str, str]], model: ProgressNet | None
) -> Iterator[tuple[tuple[str, str], RendererRow]]:
    """Yield the PSNR of each view, dB, and the difference of a model's progress, per task and robot."""
    for task, robot in cells:
        renderings = compare_renderers(
            task, robot, num_envs=config.num_envs, frame_stride=config.frame_stride, image_size=config.image_size
        )
        row = {
            **{f"{view}_psnr_db": value for view, value in renderings.psnr().items()},
            "min_psnr_db": renderings.min_psnr(),
        }
        yield (task, robot), row if model is None else {**row, **progress_difference(model, renderings)}


def progress_difference(model: ProgressNet, renderings: RendererComparison) -> RendererRow:
    """Return the mean and maximum difference of progress between renderers, over environments and timesteps."""
    difference = np.abs(
        predict_progress(model, renderings, renderings.gl_frames)
        - predict_progress(model, renderings, renderings.traced_frames)
    )
    return {"progress_mean_difference": float(difference.mean()), "progress_max_difference": float(difference.max())}


def predict_progress(model: ProgressNet, renderings: RendererComparison, frames: Frames) -> Array:
    """Predict the progress [N, T] of frames [T, N, V, H, W, 3]."""
    known_views = [(view, v) for v, view in enumerate(renderings.views) if view in model.config.views]
    episodes = [
        Episode(
            name=f"env {n}",
            views={view: frames[:, n, v] for view, v in known_views},
            instruction=instruction,
            fps=CONTROL_HZ,
        )
        for n, instruction in enumerate(renderings.instructions)
    ]
    return np.array([prediction.progress for prediction in score_episodes(model, episodes)])


def markdown_section(config: BenchRenderersConfig, rows: Mapping[tuple[str, str], RendererRow]) -> str:
    """Return the results as Markdown."""
    columns = list(next(iter(rows.values())))
    lines = [
        "## OpenGL and the ray tracer" + ("" if config.checkpoint is None else ", scored by a reward model"),
        "",
        f"`embodied-rm bench renderers`: {config.num_envs} expert episodes, rendered every {config.frame_stride} steps "
        f"at {config.image_size}x{config.image_size}; PSNR over all images of a view, and the minimum over "
        "timesteps and views.",
        "",
        f"| task | arm | {' | '.join(column.replace('_', ' ') for column in columns)} |",
        "|---|---|" + "---|" * len(columns),
    ]
    lines += [
        f"| {task} | {robot} | {' | '.join(format_cell(column, row[column]) for column in columns)} |"
        for (task, robot), row in rows.items()
    ]
    return "\n".join(lines)


def format_cell(column: str, value: float) -> str:
    """Format a cell of the table."""
    return f"{value:.1f}" if column.endswith("_db") else f"{value:.3f}"


COMMAND = Command(schema=BenchRenderersConfig, main=main)
