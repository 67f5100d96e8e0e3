"""Plots of episodes, and videos with the progress curve."""

import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from embodied_rm.data.source import EpisodeMeta, EpisodeSource, ImageSize, stride_indices
from embodied_rm.data.video.display_size import display_width
from embodied_rm.data.video.files import VideoWriter
from embodied_rm.metrics import prediction_interval
from embodied_rm.score.score_config import ScoreConfig
from embodied_rm.types import Array, Episode, Frames, RewardOutput

CURVE_SIZE_PX = (480, 160)  # width and height of the curve in a video; the views above it have the same total width
MARGIN_PX = 8  # margin around the curve


def plot_episode(meta: EpisodeMeta, fps: float, prediction: RewardOutput, scale: float | None = None) -> bytes:
    """Plot progress, its uncertainty, success, out-of-distribution frames and annotated subtasks, as a PNG.

    With the interval scale of a calibrated model, its interval is plotted instead of the uncertainty.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # slow to import, and not every run plots
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.add_subplot()
    seconds = np.arange(len(prediction)) / fps
    low, high = uncertainty_bounds(prediction, scale)
    axes.fill_between(seconds, low, high, alpha=0.25, linewidth=0)
    axes.plot(seconds, prediction.progress, label="progress")
    axes.plot(seconds, prediction.success, label="probability of success", linewidth=1)
    is_ood = prediction.ood > 1
    if is_ood.any():
        axes.plot(seconds[is_ood], np.zeros(is_ood.sum()), "|", color="tab:red", label="out of distribution")
    for subtask in meta.subtasks:
        axes.axvline(subtask.start / fps, color="0.8", linewidth=0.8, zorder=0)
    axes.set(xlabel="seconds", ylim=(-0.02, 1.02))
    axes.set_title(meta.caption, parse_math=False)  # an instruction may hold any character, "$" too
    axes.legend(loc="upper left", frameon=False)
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)
    return buffer.getvalue()


def uncertainty_bounds(prediction: RewardOutput, scale: float | None = None) -> tuple[Array, Array]:
    """Return bounds of progress, float32 [T] in [0, 1]: its interval, or progress +- uncertainty without a scale."""
    if scale is not None:
        return prediction_interval(prediction.progress, prediction.uncertainty, scale)
    progress, uncertainty = prediction.progress, prediction.uncertainty
    return np.clip(progress - uncertainty, 0, 1), np.clip(progress + uncertainty, 0, 1)


def plot_series(prediction: RewardOutput, scale: float | None = None) -> dict[str, Array]:
    """Return the plotted series of a prediction: name -> float32 [T], nan where there is no value."""
    low, high = uncertainty_bounds(prediction, scale)
    columns = {"progress": prediction.progress, "low": low, "high": high}
    columns |= {name: getattr(prediction, name) for name in ("success", "uncertainty", "ood")}
    return {name: np.where(prediction.valid, values, np.nan) for name, values in columns.items()}


def write_episode_video(
    path: Path,
    source: EpisodeSource,
    row: int,
    prediction: RewardOutput,
    image_size: ImageSize | None,
    config: ScoreConfig,
) -> None:
    """Write the video of an episode; `image_size` is that of the model's images, None: as recorded."""
    length, num_views = source.meta[row].length, len(source.views)
    frame_stride = -(-length // config.max_video_frames)
    size = display_size(image_size or source.image_size(row), num_views)
    episode = source.episode(row, stride=frame_stride, size=size)
    write_video(path, episode, prediction.progress[stride_indices(length, frame_stride)])


def display_size(size: tuple[int, int], num_views: int) -> tuple[int, int]:
    """Return the even height and width of images that are together as wide as the curve."""
    # `display_width` of the image on its side: its height at the width that is left for it.
    height, width = size
    view_width = CURVE_SIZE_PX[0] // num_views // 2 * 2
    return display_width((width, height), view_width), view_width


def write_video(path: Path, episode: Episode, progress: Array) -> None:
    """Write an mp4 with all views side by side, and below them the curve [T] up to the current frame."""
    assert len(progress) == len(episode)
    xs_px = np.linspace(MARGIN_PX, CURVE_SIZE_PX[0] - MARGIN_PX, len(progress))
    ys_px = CURVE_SIZE_PX[1] - MARGIN_PX - progress * (CURVE_SIZE_PX[1] - 2 * MARGIN_PX)
    points = list(zip(xs_px.tolist(), ys_px.tolist(), strict=True))
    empty_curve, full_curve = draw_curve([]), draw_curve(points)
    height, width = next(iter(episode.views.values())).shape[1:3]
    with VideoWriter(path, episode.fps, (height + CURVE_SIZE_PX[1], CURVE_SIZE_PX[0])) as writer:
        for t, (x, y) in enumerate(points):
            canvas = np.zeros((height + CURVE_SIZE_PX[1], CURVE_SIZE_PX[0], 3), np.uint8)
            for view_index, frames in enumerate(episode.views.values()):
                canvas[:height, view_index * width : (view_index + 1) * width] = frames[t]
            drawn_px = round(x)
            canvas[height:, :drawn_px], canvas[height:, drawn_px:] = full_curve[:, :drawn_px], empty_curve[:, drawn_px:]
            marker_top = height + round(y)
            canvas[marker_top - 2 : marker_top + 3, drawn_px - 2 : drawn_px + 3] = 255
            writer.add(canvas[None])


def draw_curve(points: list[tuple[float, float]]) -> Frames:
    """Draw lines at progress 0, 1/2 and 1 and the curve through the points, uint8 [H, W, 3] of `CURVE_SIZE_PX`."""
    image = Image.new("RGB", CURVE_SIZE_PX, (17, 17, 17))
    draw = ImageDraw.Draw(image)
    for y in np.linspace(MARGIN_PX, CURVE_SIZE_PX[1] - MARGIN_PX, 3):
        draw.line([(MARGIN_PX, y), (CURVE_SIZE_PX[0] - MARGIN_PX, y)], fill=(60, 60, 60))
    if points:
        draw.line(points, fill=(90, 200, 120), width=2)
    return np.asarray(image)
