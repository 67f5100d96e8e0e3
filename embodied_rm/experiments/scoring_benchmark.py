"""`embodied-rm bench score`: speed of scoring videos from disk, compared with only decoding them."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np

from embodied_rm.command import Command
from embodied_rm.data.block_reader import iter_blocks
from embodied_rm.data.dataset_path import resolve_dataset
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.source import EpisodeSource
from embodied_rm.data.video.files import VideoWriter
from embodied_rm.errors import UserError, check_minimum
from embodied_rm.experiments.load import load_or_make_net
from embodied_rm.experiments.results_page import describe_machine, write_results
from embodied_rm.experiments.timing import median_ratio, throughputs, time_in_turn
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.run_folder import NullReporter, Reporter, RunFolder
from embodied_rm.score import ScoreConfig, score
from embodied_rm.types import Frames
from embodied_sim.vec_env import VIEW_NAMES

VIDEO_FPS = 20.0
NUM_SHAPES = 6  # moving rectangles in a video
INSTRUCTION = "lift the red cube"
DECODED, SCORED = "decoded", "scored"


@dataclass(frozen=True, kw_only=True)
class BenchScoreConfig:
    """Config of `bench score`."""

    data: Path | None = None
    checkpoint: Path | None = None
    instruction: str | None = None
    num_frames: int = 2400
    image_size: tuple[int, int] = (480, 640)
    repeats: int = 5
    results_page: Path | None = None

    def __post_init__(self) -> None:
        check_minimum(self, 2, "num_frames")
        check_minimum(self, 1, "repeats")
        if min(self.image_size) < 2 or any(pixels % 2 for pixels in self.image_size):
            raise UserError(f"image_size must be an even height and width, got {list(self.image_size)}")


def main(config: BenchScoreConfig, run: RunFolder, reporter: Reporter) -> None:
    """Measure; write metrics and, if set, a section of the results page."""
    source = open_or_make_data(config, run, reporter)
    net = load_or_make_net(config.checkpoint, NetConfig(views=source.views))
    views, stored_size = net.input_spec.select_views(source.views, "the recording"), source.image_size(0)
    frames = sum(meta.length for meta in source.meta)
    settings = {"views": len(views), "frames": frames, "image_size": f"{stored_size[1]}x{stored_size[0]}"}
    reporter.table("bench score", {"machine": describe_machine(), **settings})
    seconds = time_in_turn(make_contenders(net, source, run), config.repeats, 1, reporter, "videos")
    ratio = median_ratio(seconds, DECODED, SCORED)
    metrics = {**throughputs(seconds, frames * len(views)), "scored_to_decoded": ratio}
    reporter.table("view-frames per second", metrics)
    text = markdown_section(config, settings, metrics)
    write_results(run, config.results_page, "bench score", {**settings, **metrics}, text)


def open_or_make_data(config: BenchScoreConfig, run: RunFolder, reporter: Reporter) -> EpisodeSource:
    """Open the dataset `data`, or make videos of moving shapes in the run folder."""
    if config.data is not None:
        return open_dataset(resolve_dataset(config.data), config.instruction)
    for number, view in enumerate(reporter.track(VIEW_NAMES, "make videos")):
        frames = render_moving_shapes(np.random.default_rng(number), config.num_frames, config.image_size)
        with VideoWriter(run.file_path(f"videos/{view}.mp4"), VIDEO_FPS, config.image_size) as writer:
            for frame in frames:
                writer.add(frame[None])
    return open_dataset(run.path / "videos", config.instruction or INSTRUCTION)


def render_moving_shapes(rng: np.random.Generator, frames: int, size: tuple[int, int]) -> Iterator[Frames]:
    """Yield images uint8 [H, W, 3] of colored rectangles that move over a fixed background."""
    tiles = rng.integers(60, 200, (-(-size[0] // 8), -(-size[1] // 8), 3), np.uint8)
    background = tiles.repeat(8, axis=0).repeat(8, axis=1)[: size[0], : size[1]]
    colors = rng.integers(0, 256, (NUM_SHAPES, 3), np.uint8)
    speeds, starts = rng.uniform(0.01, 0.05, (NUM_SHAPES, 2)), rng.uniform(0, 6, (NUM_SHAPES, 2))
    rectangle_size = np.array(size) // 6
    for t in range(frames):
        frame = background.copy()
        corners = (np.array(size) - rectangle_size) * (0.5 + 0.5 * np.sin(t * speeds + starts))
        for color, (y, x) in zip(colors, corners.astype(int), strict=True):
            frame[y : y + rectangle_size[0], x : x + rectangle_size[1]] = color
        yield frame


def make_contenders(net: ProgressNet, source: EpisodeSource, run: RunFolder) -> dict[str, Callable[[], object]]:
    """Return functions for decoding alone, and for scoring without plots and videos in a new run folder."""
    rows, size = range(len(source)), net.config.encoder.image_size
    views = net.input_spec.select_views(source.views, "the recording")
    score_config, run_numbers = ScoreConfig(plots=False, videos=False), count()

    def score_all() -> object:
        scored_run = RunFolder.open(run.path / f"scored_{next(run_numbers)}")
        return score(net, source, score_config, scored_run, NullReporter())

    return {DECODED: lambda: deque(iter_blocks(source, rows, views, size), maxlen=0), SCORED: score_all}


def markdown_section(config: BenchScoreConfig, settings: Mapping[str, object], metrics: Mapping[str, float]) -> str:
    """Return the results as Markdown."""
    data_label = "videos of moving shapes" if config.data is None else "recordings"
    return "\n".join([
        "## Scoring videos from disk",
        "",
        f"`embodied-rm bench score`: {settings['frames']} frames of {settings['views']} views, {data_label}, "
        f"{settings['image_size']}. Decoded: the same decoder and image size without the model. Scored: `embodied-rm "
        f"score` without plots and videos. Medians of {config.repeats} interleaved runs; the ratio is the median "
        "within a round.",
        "",
        "| | view-frames per second | ratio |",
        "|---|---|---|",
        f"| decoded | {metrics['decoded_per_s']:,.0f} | |",
        f"| scored | {metrics['scored_per_s']:,.0f} | {metrics['scored_to_decoded']:.2f} |",
    ])  # fmt: skip


COMMAND = Command(schema=BenchScoreConfig, main=main)
