"""What is looked at beside the table: a plot of an episode, and its video with the curve drawn in."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image, ImageDraw

from embodied_rm.atomic_file import write_atomic
from embodied_rm.data.faults import Fault
from embodied_rm.data.source import EpisodeMeta, EpisodeSource
from embodied_rm.data.stride import kept_frames
from embodied_rm.data.video.files import VideoWriter
from embodied_rm.errors import DataError
from embodied_rm.metrics import interval
from embodied_rm.run import RunFolder
from embodied_rm.score.config import ScoreConfig
from embodied_rm.types import Array, Episode, Frames, Progress

CURVE_SIZE = (480, 160)
"""Width and height of the curve in a video, pixels; the views above it are as wide together."""
MARGIN = 8
"""Pixels around the curve."""


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """Writes what a user looks at of an episode, named after it: a plot, a video."""

    config: ScoreConfig
    run: RunFolder
    image_size: tuple[int, int] | None
    """Height and width at which the model sees; None: as it was recorded."""
    interval_scale: float | None
    """That of a calibrated model."""

    def leave(self, source: EpisodeSource, row: int, curve: Progress) -> list[Fault]:
        """What is asked for; why the video of an episode that could be scored is not there: its other views."""
        meta = source.meta[row]
        if self.config.plots:
            write_atomic(
                self.run.file(f"{meta.name}.png"), plot(meta, source.frame_rate(row), curve, self.interval_scale)
            )
        if self.config.videos:
            try:
                self._film(source, row, curve)
            except DataError as error:
                return [Fault.told_by(error, ())]
        return []

    def _film(self, source: EpisodeSource, row: int, curve: Progress) -> None:
        meta, size = source.meta[row], self.image_size or source.picture_size(row)
        stride = -(-meta.length // self.config.video_frames)
        film = source.episode(row, stride=stride, size=display_size(size, len(source.views)))
        write_video(self.run.file(f"{meta.name}.mp4"), film, curve.value[kept_frames(meta.length, stride)])


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
