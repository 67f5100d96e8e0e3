"""`embodied-rm bench score`: how fast long films are scored from disk, against only decoding them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median

import numpy as np
import torch

from embodied_rm.cli.benchmarks import machine, put_section
from embodied_rm.cli.command import Command
from embodied_rm.cli.places import REWARD_MODEL, checkpoint_in, dataset_in
from embodied_rm.data.catalog import open_data
from embodied_rm.data.film import films
from embodied_rm.data.source import EpisodeSource
from embodied_rm.data.video.files import VideoWriter
from embodied_rm.errors import UserError
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.run import Reporter, RunFolder, Silent
from embodied_rm.score import ScoreConfig, score, views_for
from embodied_rm.types import Frames
from sim.vec_env import VIEWS

FPS = 20.0
SHAPES = 6
"""Rectangles that move in a film."""
INSTRUCTION = "lift the red cube"
DECODED, SCORED = "decoded", "scored"


@dataclass(frozen=True, kw_only=True)
class BenchScoreConfig:
    """What is scored and how often."""

    data: Path | None = None
    checkpoint: Path | None = None
    instruction: str | None = None
    frames: int = 2400
    size: tuple[int, int] = (480, 640)
    rounds: int = 5
    page: Path | None = None

    def __post_init__(self) -> None:
        for name, least in (("frames", 2), ("rounds", 1)):
            if getattr(self, name) < least:
                raise UserError(f"{name} must be >= {least}, got {getattr(self, name)}")
        if min(self.size) < 2 or any(pixels % 2 for pixels in self.size):
            raise UserError(f"size must be an even height and width, got {list(self.size)}")


def start(config: BenchScoreConfig, run: RunFolder, reporter: Reporter) -> None:
    """Measure; leave numbers and perhaps a section of a page."""
    source = opened(config, run, reporter)
    net = reward_model(config, source)
    views, shape = views_for(net.sight, source), source.picture_size(0)
    frames = sum(meta.length for meta in source.meta)
    about = {"views": len(views), "frames": frames, "pictures": f"{shape[1]}x{shape[0]}"}
    reporter.table("bench score", {"machine": machine(), **about})
    calls = contenders(net, source, run)
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for name, taken in reporter.track(turns(calls, config.rounds), "films", total=len(calls) * config.rounds):
        seconds[name].append(taken)
    told = summary(seconds, frames * len(views))
    reporter.table("view-frames a second", told)
    run.write_json("metrics.json", {"bench": {"machine": machine(), **about, **told}})
    if config.page is not None:
        put_section(config.page, "bench score", section(config, about, told))


def opened(config: BenchScoreConfig, run: RunFolder, reporter: Reporter) -> EpisodeSource:
    """The recordings of `data`, or films of moving shapes made in the run folder."""
    if config.data is not None:
        return open_data(dataset_in(config.data), config.instruction)
    for number, view in enumerate(reporter.track(VIEWS, "make films")):
        pictures = moving_shapes(np.random.default_rng(number), config.frames, config.size)
        with VideoWriter(run.file(f"films/{view}.mp4"), FPS, config.size) as writer:
            for picture in pictures:
                writer.add(picture[None])
    return open_data(run.path / "films", config.instruction or INSTRUCTION)


def moving_shapes(rng: np.random.Generator, frames: int, size: tuple[int, int]) -> Iterator[Frames]:
    """Pictures uint8 [H, W, 3]: coloured rectangles on their ways over a background that stands still."""
    tiles = rng.integers(60, 200, (-(-size[0] // 8), -(-size[1] // 8), 3), np.uint8)
    background = tiles.repeat(8, axis=0).repeat(8, axis=1)[: size[0], : size[1]]
    colours = rng.integers(0, 256, (SHAPES, 3), np.uint8)
    speeds, starts = rng.uniform(0.01, 0.05, (SHAPES, 2)), rng.uniform(0, 6, (SHAPES, 2))
    edge = np.array(size) // 6
    for t in range(frames):
        picture = background.copy()
        corners = (np.array(size) - edge) * (0.5 + 0.5 * np.sin(t * speeds + starts))
        for colour, (y, x) in zip(colours, corners.astype(int), strict=True):
            picture[y : y + edge[0], x : x + edge[1]] = colour
        yield picture


def reward_model(config: BenchScoreConfig, source: EpisodeSource) -> ProgressNet:
    """The model of the checkpoint, or one of the usual kind with random weights that knows these views."""
    if config.checkpoint is not None:
        return load_progress_net(checkpoint_in(config.checkpoint, REWARD_MODEL))
    torch.manual_seed(0)
    return ProgressNet(NetConfig(views=source.views)).eval()


def contenders(net: ProgressNet, source: EpisodeSource, run: RunFolder) -> dict[str, Callable[[], object]]:
    """Decoding alone, and all that scoring does but plots and videos, anew each time."""
    rows, views, size = range(len(source)), views_for(net.sight, source), net.config.encoder.image_size
    bare, number = ScoreConfig(plots=False, videos=False), count()

    def scored() -> object:
        return score(net, source, bare, RunFolder.open(run.path / f"scored_{next(number)}"), Silent())

    return {DECODED: lambda: deque(films(source, rows, views, size), maxlen=0), SCORED: scored}


def turns(calls: Mapping[str, Callable[[], object]], rounds: int) -> Iterator[tuple[str, float]]:
    """(name, seconds of one call), in turn, so that a busy machine is busy for all."""
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            yield name, time.perf_counter() - began


def summary(seconds: Mapping[str, list[float]], frames: int) -> dict[str, float]:
    """View-frames a second by the median, and the median of the ratios within a round."""
    told = {f"{name}_per_s": frames / median(taken) for name, taken in seconds.items()}
    ratios = [alone / all_ for alone, all_ in zip(seconds[DECODED], seconds[SCORED], strict=True)]
    return {**told, "scored_to_decoded": median(ratios)}


def section(config: BenchScoreConfig, about: Mapping[str, object], told: Mapping[str, float]) -> str:
    """The results as Markdown."""
    what = "films of moving shapes" if config.data is None else "recordings"
    return "\n".join([
        "## Scoring films from disk",
        "",
        f"`embodied-rm bench score`: {about['frames']} frames of {about['views']} views, {what}, {about['pictures']}. "
        "Decoded: the same films by the same decoder, shrunk to what the model sees, judging nothing. Scored: "
        f"`embodied-rm score` without plots and videos. Medians of {config.rounds}, in turn; the share is that of "
        "each round.",
        "",
        "| view-frames a second | | share |",
        "|---|---|---|",
        f"| decoded | {told['decoded_per_s']:,.0f} | |",
        f"| scored | {told['scored_per_s']:,.0f} | {told['scored_to_decoded']:.2f} |",
    ])  # fmt: skip


COMMAND = Command(schema=BenchScoreConfig, start=start)
