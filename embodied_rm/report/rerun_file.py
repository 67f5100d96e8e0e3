"""Judged recordings for the viewer of Rerun: films above, curves below, on one clock. Imports its SDK, the extra
`rerun`."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from itertools import chain, groupby
from operator import itemgetter

import numpy as np
import pyarrow as pa
import rerun as rr
import rerun.blueprint as rrb
from PIL import Image

from embodied_rm.atomic_file import atomic_file
from embodied_rm.data.film import count_blocks, films
from embodied_rm.data.source import EpisodeMeta, EpisodeSource
from embodied_rm.errors import DataError
from embodied_rm.run import Reporter, RunFolder
from embodied_rm.types import Array, Frames, IntArray, Views

APPLICATION = "embodied_rm"
HEIGHT = 360
"""Most rows of pixels of a picture; taller ones are made smaller."""
QUALITY = 85
"""Of the JPEGs."""
JUDGED = {
    "progress": (60, 170, 90),
    "low": (60, 170, 90, 110),
    "high": (60, 170, 90, 110),
    "success": (70, 120, 230),
}
DOUBTED = {"spread": (220, 150, 30), "ood": (220, 60, 60)}
"""The curves of the two plots, and their colours."""


def write_rerun(
    run: RunFolder, source: EpisodeSource, curves: Mapping[int, Mapping[str, Array]], reporter: Reporter
) -> None:
    """Write `<episode>.rrd` into the run folder for every row of a source that has `curves`: name -> float32 [T], nan
    where there is nothing to draw.

    Read, encoded and written block by block: of a film only some frames lie in memory. Raises `DataError` naming a file
    and its fault.
    """
    reading = chain.from_iterable(films(source, [row], source.views, shown_size(source, row)) for row in curves)
    tracked = reporter.track(reading, "write for Rerun", count_blocks(source, list(curves)))
    for row, blocks in groupby(tracked, key=itemgetter(0)):
        meta, fps, frame = source.meta[row], source.frame_rate(row), 0
        lines = {name: line for name, line in curves[row].items() if np.isfinite(line).any()}
        path = run.file(f"{meta.name}.rrd")
        with atomic_file(path) as partial:
            with rr.RecordingStream(APPLICATION) as stream:
                stream.save(partial, default_blueprint=blueprint(source.views, lines))
                stream.send_recording_name(meta.name)
                send_words(stream, meta, fps)
                send_curves(stream, lines, fps)
                for _, views in blocks:
                    if isinstance(views, DataError):
                        raise views
                    send_views(stream, views, frame, fps)
                    frame += len(views)
            stream.disconnect()


def shown_size(source: EpisodeSource, row: int) -> tuple[int, int]:
    """Height and width of an episode's pictures as they are shown: as stored, but no taller than `HEIGHT`."""
    height, width = source.picture_size(row)
    return (height, width) if height <= HEIGHT else (HEIGHT, round(width * HEIGHT / height))


def send_words(stream: rr.RecordingStream, meta: EpisodeMeta, fps: float) -> None:
    """The instruction, and the annotated step under way; none between two steps that leave frames out."""
    stream.log("instruction", rr.TextDocument(meta.instruction), static=True, strict=True)
    if meta.steps:
        ends: dict[int, str | None] = {step.end: None for step in meta.steps if step.end < meta.length}
        changes = sorted({**ends, **{step.start: step.name for step in meta.steps}}.items())
        times = clock(np.array([frame for frame, _ in changes]), fps)
        names = rr.StateChange.columns(state=pa.array([name for _, name in changes]))
        stream.send_columns("step", times, names, strict=True)


def send_curves(stream: rr.RecordingStream, curves: Mapping[str, Array], fps: float) -> None:
    """Every curve, where there is something to draw, which is somewhere: columns of no rows have no time."""
    for name, values in curves.items():
        known = np.flatnonzero(np.isfinite(values))
        colour = {**JUDGED, **DOUBTED}[name]
        stream.log(f"judgement/{name}", rr.SeriesLines(names=name, colors=colour), static=True, strict=True)
        points = rr.Scalars.columns(scalars=values[known])
        stream.send_columns(f"judgement/{name}", clock(known, fps), points, strict=True)


def send_views(stream: rr.RecordingStream, views: Views, first: int, fps: float) -> None:
    """The frames of a block, which begins with the frame `first`. Returns when they are on the disk."""
    times = clock(np.arange(first, first + len(views)), fps)
    for v, name in enumerate(views.names):
        # Arrays: of bytes the SDK makes lists of numbers first, which takes as long as to compress them.
        blobs = [np.frombuffer(jpeg(frame), np.uint8) for frame in views.frames[:, v]]
        pictures = rr.EncodedImage.columns(blob=blobs, media_type=["image/jpeg"] * len(blobs))
        stream.send_columns(place(name), times, pictures, strict=True)
    stream.flush()


def clock(frames: IntArray, fps: float) -> list[rr.TimeColumn]:
    """When frames are shown: by their numbers and by the time since the first one."""
    return [rr.TimeColumn("frame", sequence=frames), rr.TimeColumn("time", duration=frames / fps)]


def place(view: str) -> str:
    """Where the pictures of a view are."""
    return rr.new_entity_path(["views", view])


def jpeg(frame: Frames) -> bytes:
    """A picture uint8 [H, W, 3], compressed."""
    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()


def blueprint(views: Sequence[str], curves: Mapping[str, Array]) -> rrb.Blueprint:
    """How the viewer shows it unless it is told otherwise: the views above, the curves and the steps below."""

    def plot(name: str, lines: Mapping[str, object], axis: rrb.ScalarAxis | None = None) -> rrb.TimeSeriesView:
        shown = [f"judgement/{line}" for line in lines if line in curves]
        return rrb.TimeSeriesView(name=name, contents=shown, axis_y=axis, plot_legend=rrb.Corner2D.LeftTop)

    return rrb.Blueprint(
        rrb.Vertical(
            rrb.TextDocumentView(name="instruction", origin="instruction"),
            rrb.Horizontal(*(rrb.Spatial2DView(name=view, origin=place(view)) for view in views)),
            plot("progress and success", JUDGED, rrb.ScalarAxis(range=(-0.02, 1.02))),
            plot("doubt", DOUBTED),
            rrb.StateTimelineView(name="annotated steps", origin="step"),
            row_shares=[1, 5, 4, 2.5, 1.5],
        ),
        rrb.TimePanel(timeline="time", state="collapsed"),
        collapse_panels=True,
    )
