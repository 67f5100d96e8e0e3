"""Exports scored episodes to Rerun recordings: videos and curves on a common timeline. Needs the extra `rerun`."""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import rerun as rr
import rerun.blueprint as rrb
from PIL import Image

from embodied_rm.atomic_file import atomic_file
from embodied_rm.data.block_reader import count_blocks, iter_blocks
from embodied_rm.data.source import EpisodeMeta, EpisodeSource
from embodied_rm.data.video.display_size import display_width
from embodied_rm.errors import DataError
from embodied_rm.report.piped_file import piped_file
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.types import Array, Frames, IntArray, Views

APPLICATION_ID = "embodied_rm"
MAX_HEIGHT_PX = 360  # taller images are downscaled
JPEG_QUALITY = 85
FLUSH_TIMEOUT_S = 120.0  # Rerun would wait for ever, and call no handlers of signals
PREDICTION_COLORS = {
    "progress": (60, 170, 90),
    "low": (60, 170, 90, 110),
    "high": (60, 170, 90, 110),
    "success": (70, 120, 230),
}
UNCERTAINTY_COLORS = {"uncertainty": (220, 150, 30), "ood": (220, 60, 60)}
"""Curve -> color, for the two plots."""


def write_rerun(
    run: RunFolder, source: EpisodeSource, curves: Mapping[int, Mapping[str, Array]], reporter: Reporter
) -> None:
    """Write `episodes/<episode>.rrd` into the run folder, for every row of a source that has curves.

    `curves`: row -> curve name -> float32 [T]; nan leaves a gap. Videos are processed in blocks, so memory is bounded.
    Raises `DataError` if a file cannot be read.
    """
    blocks_by_row = (iter_blocks(source, [row], source.views, display_size(source, row)) for row in curves)
    total = count_blocks(source, list(curves))
    tracked_blocks = reporter.track(chain.from_iterable(blocks_by_row), "export to Rerun", total)
    for row, blocks in groupby(tracked_blocks, key=itemgetter(0)):
        meta, fps, first_frame = source.meta[row], source.frame_rate(row), 0
        finite_curves = {name: values for name, values in curves[row].items() if np.isfinite(values).any()}
        path = run.episode_path(meta.name, ".rrd")
        with atomic_file(path) as partial, piped_file(partial) as pipe, recording_stream() as stream:
            stream.save(pipe, default_blueprint=make_blueprint(source.views, finite_curves))
            stream.send_recording_name(meta.name)
            log_instruction(stream, meta, fps)
            log_curves(stream, finite_curves, fps)
            for _, views in blocks:
                if isinstance(views, DataError):
                    raise views
                log_views(stream, views, first_frame, fps)
                first_frame += len(views)


@contextmanager
def recording_stream() -> Iterator[rr.RecordingStream]:
    """Yield a new recording, which is complete and closed after the block."""
    stream = rr.RecordingStream(APPLICATION_ID)
    try:
        with stream:
            yield stream
    finally:
        stream.disconnect()


def display_size(source: EpisodeSource, row: int) -> tuple[int, int]:
    """Return height and width of the displayed images: as stored, but at most `MAX_HEIGHT_PX` high."""
    size = source.image_size(row)
    return size if size[0] <= MAX_HEIGHT_PX else (MAX_HEIGHT_PX, display_width(size, MAX_HEIGHT_PX))


def log_instruction(stream: rr.RecordingStream, meta: EpisodeMeta, fps: float) -> None:
    """Log the instruction and the annotated subtasks, with gaps between subtasks that are not adjacent."""
    stream.log("instruction", rr.TextDocument(meta.instruction), static=True, strict=True)
    if meta.subtasks:
        changes: dict[int, str | None] = {step.end: None for step in meta.subtasks if step.end < meta.length}
        changes |= {step.start: step.name for step in meta.subtasks}
        times = time_columns(np.array(sorted(changes)), fps)
        names = rr.StateChange.columns(state=pa.array([changes[frame] for frame in sorted(changes)]))
        stream.send_columns("subtask", times, names, strict=True)


def log_curves(stream: rr.RecordingStream, curves: Mapping[str, Array], fps: float) -> None:
    """Log the finite values of every curve. A curve must have at least one: Rerun accepts no empty columns."""
    for name, values in curves.items():
        frame_indices = np.flatnonzero(np.isfinite(values))
        color = {**PREDICTION_COLORS, **UNCERTAINTY_COLORS}[name]
        stream.log(f"prediction/{name}", rr.SeriesLines(names=name, colors=color), static=True, strict=True)
        points = rr.Scalars.columns(scalars=values[frame_indices])
        stream.send_columns(f"prediction/{name}", time_columns(frame_indices, fps), points, strict=True)


def log_views(stream: rr.RecordingStream, views: Views, first_frame: int, fps: float) -> None:
    """Log the frames of a block that starts at `first_frame`, and flush them to disk."""
    times = time_columns(np.arange(first_frame, first_frame + len(views)), fps)
    for v, name in enumerate(views.names):
        # The SDK converts bytes to lists of integers, which takes as long as the compression; arrays avoid that.
        blobs = [np.frombuffer(encode_jpeg(frame), np.uint8) for frame in views.frames[:, v]]
        images = rr.EncodedImage.columns(blob=blobs, media_type=["image/jpeg"] * len(blobs))
        stream.send_columns(view_entity_path(name), times, images, strict=True)
    stream.flush(timeout_sec=FLUSH_TIMEOUT_S)


def time_columns(frames: IntArray, fps: float) -> list[rr.TimeColumn]:
    """Return the timelines of frames: index, and seconds since the first frame."""
    return [rr.TimeColumn("frame", sequence=frames), rr.TimeColumn("time", duration=frames / fps)]


def view_entity_path(view: str) -> str:
    """Return the entity path of a view."""
    return rr.new_entity_path(["views", view])


def encode_jpeg(frame: Frames) -> bytes:
    """Encode an image uint8 [H, W, 3] as JPEG."""
    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, "JPEG", quality=JPEG_QUALITY)
    return buffer.getvalue()


def make_blueprint(views: Sequence[str], curves: Mapping[str, Array]) -> rrb.Blueprint:
    """Return the default layout: views at the top, curves and subtasks below."""

    def plot(name: str, color_by_curve: Mapping[str, object], y_axis: Any = None) -> rrb.TimeSeriesView:
        entity_paths = [f"prediction/{curve}" for curve in color_by_curve if curve in curves]
        return rrb.TimeSeriesView(name=name, contents=entity_paths, axis_y=y_axis, plot_legend=rrb.Corner2D.LeftTop)

    return rrb.Blueprint(
        rrb.Vertical(
            rrb.TextDocumentView(name="instruction", origin="instruction"),
            rrb.Horizontal(*(rrb.Spatial2DView(name=view, origin=view_entity_path(view)) for view in views)),
            plot("progress and success", PREDICTION_COLORS, rrb.ScalarAxis(range=(-0.02, 1.02))),
            plot("uncertainty", UNCERTAINTY_COLORS),
            rrb.StateTimelineView(name="annotated subtasks", origin="subtask"),
            row_shares=[1, 5, 4, 2.5, 1.5],
        ),
        rrb.TimePanel(timeline="time", state="collapsed"),
        collapse_panels=True,
    )
