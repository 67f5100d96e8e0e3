"""`embodied-rm bench renderers`: image differences of OpenGL and the ray tracer, and their effect on a model."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from embodied_rm.command import Command
from embodied_rm.errors import check_minimum
from embodied_rm.experiments.load import load_net
from embodied_rm.experiments.results_page import write_results
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.scoring import score_episodes
from embodied_rm.report.markdown import markdown_table
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
        check_minimum(self, 1, "num_envs", "frame_stride", "image_size")


def main(config: BenchRenderersConfig, run: RunFolder, reporter: Reporter) -> None:
    """Render, compare and score; write the metrics and, if set, a section of the results page."""
    model = None if config.checkpoint is None else load_net(config.checkpoint)[0]
    cells = task_robot_pairs(config.tasks)
    rows = dict(reporter.track(compare_cells(config, cells, model), "images", total=len(cells)))
    for (task, robot), row in rows.items():
        reporter.table(f"{task}, {robot}", dict(row))
    records = [{"task": task, "robot": robot, **row} for (task, robot), row in rows.items()]
    command = "bench renderers" if model is None else "bench renderers, scored"
    write_results(run, config.results_page, command, {"renderers": records}, markdown_section(config, rows))


def compare_cells(
    config: BenchRenderersConfig, cells: list[tuple[str, str]], model: ProgressNet | None
) -> Iterator[tuple[tuple[str, str], RendererRow]]:
    """Yield the PSNR of each view, dB, and the difference of a model's progress, per task and robot."""
    for task, robot in cells:
        renderings = compare_renderers(
            task, robot, num_envs=config.num_envs, frame_stride=config.frame_stride, image_size=config.image_size
        )
        row = {f"{view}_psnr_db": value for view, value in renderings.psnr().items()}
        row |= {"min_psnr_db": renderings.min_psnr()}
        yield (task, robot), row if model is None else {**row, **progress_difference(model, renderings)}


def progress_difference(model: ProgressNet, renderings: RendererComparison) -> RendererRow:
    """Return the mean and maximum difference of progress between renderers, over environments and timesteps."""
    renderers = (renderings.gl_frames, renderings.traced_frames)
    rasterized, traced = (predict_progress(model, renderings, frames) for frames in renderers)
    difference = np.abs(rasterized - traced)
    return {"progress_mean_difference": float(difference.mean()), "progress_max_difference": float(difference.max())}


def predict_progress(model: ProgressNet, renderings: RendererComparison, frames: Frames) -> Array:
    """Predict the progress [N, T] of frames [T, N, V, H, W, 3]."""
    known_views = [(view, v) for v, view in enumerate(renderings.views) if view in model.config.views]
    episodes = []
    for n, instruction in enumerate(renderings.instructions):
        views = {view: frames[:, n, v] for view, v in known_views}
        episodes.append(Episode(name=f"env {n}", views=views, instruction=instruction, fps=CONTROL_HZ))
    return np.array([prediction.progress for prediction in score_episodes(model, episodes)])


def markdown_section(config: BenchRenderersConfig, rows: Mapping[tuple[str, str], RendererRow]) -> str:
    """Return the results as Markdown."""
    columns = list(next(iter(rows.values())))
    header = ("task", "arm", *(column.replace("_", " ") for column in columns))
    cells = [
        (task, robot, *(f"{row[column]:.{1 if column.endswith('_db') else 3}f}" for column in columns))
        for (task, robot), row in rows.items()
    ]
    lines = [
        "## OpenGL and the ray tracer" + ("" if config.checkpoint is None else ", scored by a reward model"),
        "",
        f"`embodied-rm bench renderers`: {config.num_envs} expert episodes, rendered every {config.frame_stride} steps "
        f"at {config.image_size}x{config.image_size}; PSNR over all images of a view, and the minimum over "
        "timesteps and views.",
        "",
        *markdown_table(header, cells),
    ]
    return "\n".join(lines)


COMMAND = Command(schema=BenchRenderersConfig, main=main)
