"""Views that show nothing of a task: of one color, without change, lost, or with the images of another view."""

from collections.abc import Mapping
from itertools import combinations

import numpy as np

from embodied_rm.data.fingerprint import IndexedEpisode
from embodied_rm.data.issues import DataIssue
from embodied_rm.data.source import EpisodeSource
from embodied_rm.types import Array, Episode, Frames, IntArray

NUM_SAMPLED_FRAMES = 8
GRID_SIDE_CELLS = 32  # rows and columns of cells over which pixels are averaged, which removes noise of sensors
MAX_SIDE_PIXELS = 1024  # height and width from whose double on images are thinned out
MAX_NOISE_LEVELS = 4.0  # difference of two cells, of 255, up to which codecs and sensors make them differ
MIN_COMPARED_FRAMES = 4  # number of compared frames from which a view can freeze after the first one
MIN_CHANGED_SHARE = 0.5  # share of the cells of a frozen view that its camera or its signal changed before


def sample_indices(length: int) -> IntArray:
    """Return the frames that are compared: evenly spaced, the first and the last one among them."""
    return np.unique(np.linspace(0, length - 1, NUM_SAMPLED_FRAMES).round().astype(np.int64))


def find_degenerate_views(episode: Episode) -> Mapping[str, str]:
    """Return the degenerate views of an episode, see `compare_views`."""
    if isinstance(episode, IndexedEpisode):
        return episode.degenerate_views
    indices = sample_indices(len(episode))
    return compare_views({view: thin_pixels(frames)[indices] for view, frames in episode.views.items()})


def thin_pixels(frames: Frames) -> Frames:
    """Return every n-th row and column of images [T, H, W, 3] that are larger than `compare_views` needs."""
    height, width = frames.shape[1:3]
    return frames[:, :: max(1, height // MAX_SIDE_PIXELS), :: max(1, width // MAX_SIDE_PIXELS)]


def compare_views(views: Mapping[str, Frames]) -> dict[str, str]:
    """Return the degenerate views, each with a predicate that describes it.

    Args:
        views: View -> a few of its frames, uint8 [T, H, W, 3]. Sizes may differ between views.
    """
    means = {view: np.stack([average_cells(frame) for frame in frames]) for view, frames in views.items()}
    descriptions: dict[str, str] = {}
    for view, cells in means.items():
        if np.ptp(cells, axis=(1, 2)).max() <= MAX_NOISE_LEVELS:
            color = " ".join(str(round(level)) for level in cells.mean(axis=(0, 1, 2)).tolist())
            descriptions[view] = f"shows one color in every frame, RGB {color}"
    for view, other in combinations([view for view in means if view not in descriptions], 2):
        first, second = means[view], means[other]
        if first.shape == second.shape and np.abs(first - second).max() <= MAX_NOISE_LEVELS:
            descriptions[other] = f"shows the images of the view {view}"
    for view, cells in means.items():
        if view not in descriptions and (description := _describe_loss(views[view], cells)):
            descriptions[view] = description
    return descriptions


def _describe_loss(frames: Frames, cells: Array) -> str:
    """Describe a view that is frozen or lost, as a predicate; "" if it is not.

    A view that stays equal after a small change may be that of a fixed camera before which little happens.
    """
    if len(cells) > 1 and np.ptp(cells, axis=0).max() <= MAX_NOISE_LEVELS:
        return "never changes"
    if cells[len(cells) // 2 :].max() <= MAX_NOISE_LEVELS:
        return "is black in the second half of its frames"
    if len(frames) >= MIN_COMPARED_FRAMES and (frames[2:] == frames[1]).all():
        is_changed = np.abs(cells[1] - cells[0]).max(axis=-1) > MAX_NOISE_LEVELS
        return "never changes after its start" if is_changed.mean() > MIN_CHANGED_SHARE else ""
    return ""


def average_cells(image: Frames) -> Array:
    """Average an image uint8 [H, W, 3] over the cells of a grid; a smaller image has a cell per row or column."""
    means: Array = image.astype(np.float32)
    for length in image.shape[:2]:
        edges = np.linspace(0, length, min(length, GRID_SIDE_CELLS) + 1)
        pixels = edges.astype(np.int64).clip(max=length - 1)
        sums = np.concatenate([np.zeros_like(means[:1]), means.cumsum(axis=0)])
        parts = (edges - pixels)[:, None, None] * means[pixels]  # an edge can lie inside a pixel
        averages = np.diff(sums[pixels] + parts, axis=0) * (len(edges) - 1) / length
        means = averages.swapaxes(0, 1).astype(np.float32)  # rows first, then columns
    return means


def view_issues(source: EpisodeSource, index: int, descriptions: Mapping[str, str]) -> list[DataIssue]:
    """Return the degenerate views of an episode as notes, which name the episode, the view and its file."""
    files, episodes = source.files(index), (source.meta[index].name,)
    issues = []
    for view, description in descriptions.items():
        file = files[min(source.views.index(view), len(files) - 1)]  # one file can hold all views
        issues.append(DataIssue(file=file, message=f"the view {view} {description}", episodes=episodes, is_note=True))
    return issues
