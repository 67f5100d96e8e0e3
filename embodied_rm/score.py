"""Score recordings: the progress of every frame, as a parquet table, a plot and a video with the curve drawn in."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image, ImageDraw

from embodied_rm.data.film import count_blocks, films
from embodied_rm.data.source import EpisodeMeta, EpisodeSource, row_of
from embodied_rm.data.stride import kept_frames
from embodied_rm.data.video.files import VideoWriter
from embodied_rm.errors import UserError
from embodied_rm.metrics import interval
from embodied_rm.models.base import Judge, Sight
from embodied_rm.models.fold import fold_film
from embodied_rm.run import Reporter, RunFolder, write_atomic
from embodied_rm.types import Array, Episode, Frames, IntArray, Progress, Views

TABLE = "progress.parquet"
"""Name of the table in the run folder."""
CURVE_SIZE = (480, 160)
"""Width and height of the curve in a video, pixels; the views above it are as wide together."""
MARGIN = 8
"""Pixels around the curve."""


@dataclass(frozen=True, kw_only=True)
class ScoreConfig:
    """What to score and what to write beside the table."""

    episodes: tuple[int, ...] = ()
    """Which episodes of the source; none: all."""
    every: int = 1
    """Every how many frames are scored, and the last; between two of them what was said is carried."""
    plots: bool = True
    """A png for every episode."""
    videos: bool = True
    """An mp4 for every episode."""
    video_frames: int = 900
    """Most frames of a video; of a longer recording every n-th is shown, so that memory stays bounded."""

    def __post_init__(self) -> None:
        if self.every < 1:
            raise UserError(f"every must be >= 1, got {self.every}")
        if self.video_frames < 2:
            raise UserError(f"video_frames must be >= 2, got {self.video_frames}")


def score(
    model: Judge,
    source: EpisodeSource,
    config: ScoreConfig,
    run: RunFolder,
    reporter: Reporter,
    goal: Episode | None = None,
    reference: Episode | None = None,
) -> dict[int, Progress]:
    """Score episodes of a source; writes the table, plots and videos; episode number -> judgement of its frames.

    The last frame of `goal` shows how what is asked for looks when done, `reference` how it was done another time.
    Raises `UserError` when an episode does not exist or the source has none of the model's views.
    """
    asked = tuple(row_of(source, number) for number in dict.fromkeys(config.episodes))
    rows = asked or tuple(range(len(source)))
    curves = {}
    sight = model.sight
    scale = getattr(model, "interval_scale", None)
    reading = films(source, rows, views_for(sight, source), sight.image_size)
    tracked = reporter.track(reading, "score", count_blocks(source, rows))
    for row, blocks in groupby(tracked, key=itemgetter(0)):
        meta = source.meta[row]
        seen = kept_frames(meta.length, config.every)
        shown = thinned((views for _, views in blocks), seen)
        curves[row] = carried(fold_film(model, meta.instruction, shown, goal, reference), seen, meta.length)
        if config.plots:
            write_atomic(run.file(f"{meta.name}.png"), plot(meta, source.frame_rate(row), curves[row], scale))
        if config.videos:
            size = sight.image_size or source.picture_size(row)
            stride = -(-meta.length // config.video_frames)
            film = source.episode(row, stride=stride, size=display_size(size, len(source.views)))
            write_video(run.file(f"{meta.name}.mp4"), film, curves[row].value[kept_frames(meta.length, stride)])
    write_table(run.file(TABLE), curves, source.meta, scale)
    return curves


def thinned(blocks: Iterable[Views], kept: IntArray) -> Iterator[Views]:
    """Of a film that comes in blocks, the frames with these numbers."""
    start = 0
    for views in blocks:
        mine = kept[(kept >= start) & (kept < start + len(views))] - start
        start += len(views)
        if len(mine):
            yield views if len(mine) == len(views) else views.rows(mine)


def carried(curve: Progress, kept: IntArray, length: int) -> Progress:
    """A judgement of the frames `kept` as one of all `length` frames: between two of them the former one holds."""
    latest = np.searchsorted(kept, np.arange(length), side="right") - 1
    return Progress(**{name: column[latest] for name, column in vars(curve).items()})


def read_for(
    sight: Sight, source: EpisodeSource, rows: Sequence[int] | None = None, stride: int = 1
) -> Iterator[Episode]:
    """Episodes of a source (default: all) as the model sees them: its views, at its size; every `stride`-th frame.

    Raises `UserError` when the source has none of the model's views.
    """
    views = views_for(sight, source)
    for row in range(len(source)) if rows is None else rows:
        yield source.episode(row, views=views, size=sight.image_size, stride=stride)


def views_for(sight: Sight, source: EpisodeSource) -> list[str]:
    """The views of a source that the model knows. Raises `UserError` when there are none."""
    if sight.views is None:
        return list(source.views)
    views = [name for name in source.views if name in sight.views]
    if not views:
        raise UserError(
            f"the model knows the views {', '.join(sight.views)}; the recording has {', '.join(source.views)}"
        )
    return views


def write_table(
    path: Path, curves: dict[int, Progress], meta: Sequence[EpisodeMeta], scale: float | None = None
) -> None:
    """One row a frame, in the columns of LeRobot's `sarm_progress.parquet` and ours behind them.

    `index` counts the frames of the whole dataset and `episode_index` its episodes, those that are left out too. A
    model of one granularity gives `progress_sparse` and `progress_dense` alike. An unscored frame is not `valid` and
    carries the last progress. With the `interval_scale` of a calibrated model the table also has the bounds `low` and
    `high`. `ood` is nan of a model that does not tell.
    """
    starts = np.concatenate([[0], np.cumsum([one.length for one in meta])])
    parts = []
    for row, curve in sorted(curves.items()):
        frame, first, number = np.arange(len(curve)), meta[row].first, meta[row].number
        columns = {
            "index": frame + int(starts[row] if first is None else first),
            "episode_index": np.full(len(curve), row if number is None else number),
            "frame_index": frame,
            "progress_sparse": curve.value,
            "progress_dense": curve.value,
            "success": curve.success,
            "stage": curve.stage,
            "spread": curve.spread,
            "valid": curve.valid,
            "ood": curve.ood,
        }
        if scale is not None:
            columns["low"], columns["high"] = interval(curve.value, curve.spread, scale)
        parts.append(pa.table(columns))
    buffer = io.BytesIO()
    pq.write_table(pa.concat_tables(parts), buffer)
    write_atomic(path, buffer.getvalue())


def plot(meta: EpisodeMeta, fps: float, curve: Progress, scale: float | None = None) -> bytes:
    """A png: progress with its spread, of a calibrated model its interval and where its states are out of distribution,
    probability of success, and the annotated steps if there are any."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.add_subplot()
    seconds = np.arange(len(curve)) / fps
    low, high = bounds(curve, scale)
    axes.fill_between(seconds, low, high, alpha=0.25, linewidth=0)
    axes.plot(seconds, curve.value, label="progress")
    axes.plot(seconds, curve.success, label="probability of success", linewidth=1)
    unusual = curve.ood > 1
    if unusual.any():
        axes.plot(seconds[unusual], np.zeros(unusual.sum()), "|", color="tab:red", label="out of distribution")
    for step in meta.steps:
        axes.axvline(step.start / fps, color="0.8", linewidth=0.8, zorder=0)
    axes.set(xlabel="seconds", ylim=(-0.02, 1.02), title=f"{meta.name}: {meta.instruction}")
    axes.legend(loc="upper left", frameon=False)
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)
    return buffer.getvalue()


def bounds(curve: Progress, scale: float | None = None) -> tuple[Array, Array]:
    """What is drawn around the progress, float32 [T] in [0, 1]: of a calibrated model its interval, else a spread."""
    if scale is not None:
        return interval(curve.value, curve.spread, scale)
    return np.clip(curve.value - curve.spread, 0, 1), np.clip(curve.value + curve.spread, 0, 1)


def series(curve: Progress, scale: float | None = None) -> dict[str, Array]:
    """All that is drawn of a judgement, name -> float32 [T]; nan where the model did not or could not say it."""
    low, high = bounds(curve, scale)
    told = {"progress": curve.value, "low": low, "high": high, "success": curve.success, "spread": curve.spread}
    return {name: np.where(curve.valid, line, np.nan) for name, line in {**told, "ood": curve.ood}.items()}


def display_size(size: tuple[int, int], views: int) -> tuple[int, int]:
    """Height and width, both even, at which pictures of that shape stand side by side as wide as the curve."""
    height, width = size
    shown = CURVE_SIZE[0] // views // 2 * 2
    return round(shown * height / width / 2) * 2, shown


def write_video(path: Path, episode: Episode, progress: Array) -> None:
    """An mp4: all views side by side, below them the curve [T], drawn up to the frame that is shown."""
    assert len(progress) == len(episode)
    xs = np.linspace(MARGIN, CURVE_SIZE[0] - MARGIN, len(progress))
    ys = CURVE_SIZE[1] - MARGIN - progress * (CURVE_SIZE[1] - 2 * MARGIN)
    points = list(zip(xs.tolist(), ys.tolist(), strict=True))
    empty, whole = draw_curve([]), draw_curve(points)
    height, width = next(iter(episode.views.values())).shape[1:3]
    with VideoWriter(path, episode.fps, (height + CURVE_SIZE[1], CURVE_SIZE[0])) as writer:
        for t, (x, y) in enumerate(points):
            picture = np.zeros((height + CURVE_SIZE[1], CURVE_SIZE[0], 3), np.uint8)
            for v, frames in enumerate(episode.views.values()):
                picture[:height, v * width : (v + 1) * width] = frames[t]
            drawn = round(x)
            picture[height:, :drawn], picture[height:, drawn:] = whole[:, :drawn], empty[:, drawn:]
            corner = height + round(y)
            picture[corner - 2 : corner + 3, drawn - 2 : drawn + 3] = 255
            writer.add(picture[None])


def draw_curve(points: list[tuple[float, float]]) -> Frames:
    """uint8 [CURVE_SIZE[1], CURVE_SIZE[0], 3]: lines at progress 0, 1/2 and 1, and the curve through the points."""
    image = Image.new("RGB", CURVE_SIZE, (17, 17, 17))
    pen = ImageDraw.Draw(image)
    for y in np.linspace(MARGIN, CURVE_SIZE[1] - MARGIN, 3):
        pen.line([(MARGIN, y), (CURVE_SIZE[0] - MARGIN, y)], fill=(60, 60, 60))
    if points:
        pen.line(points, fill=(90, 200, 120), width=2)
    return np.asarray(image)
