"""Views that show nothing of a task: of one color, without change, or with the images of another view."""

from collections.abc import Mapping
from itertools import combinations

import numpy as np

from embodied_rm.data.fingerprint import IndexedEpisode
from embodied_rm.data.issues import DataIssue
from embodied_rm.data.source import EpisodeSource
from embodied_rm.types import Array, Episode, Frames, IntArray

NUM_SAMPLED_FRAMES = 8
GRID_SIDE_CELLS = 32  # rows and columns of cells over which pixels are averaged, which removes noise of sensors
MAX_NOISE_LEVELS = 4.0  # difference of two cells, of 255, up to which codecs and sensors make them differ


def sample_indices(length: int) -> IntArray:
    """Return the frames that are compared: evenly spaced, the first and the last one among them."""
    return np.unique(np.linspace(0, length - 1, NUM_SAMPLED_FRAMES).round().astype(np.int64))


def find_view_faults(episode: Episode) -> Mapping[str, str]:
    """Return view -> its fault as a predicate, for the views of an episode that have one."""
    if isinstance(episode, IndexedEpisode):
        return episode.view_faults
    indices = sample_indices(len(episode))
    return compare_views({view: frames[indices] for view, frames in episode.views.items()})


def compare_views(views: Mapping[str, Frames]) -> dict[str, str]:
    """Return the faults of views by a few of their frames, uint8 [T, H, W, 3]; sizes may differ between views."""
    cells = {view: average_cells(frames) for view, frames in views.items()}
    faults: dict[str, str] = {}
    for view, means in cells.items():
        if np.ptp(means, axis=(1, 2)).max() <= MAX_NOISE_LEVELS:
            color = " ".join(str(round(level)) for level in means.mean(axis=(0, 1, 2)).tolist())
            faults[view] = f"shows one color in every frame, RGB {color}"
    for view, other in combinations([view for view in cells if view not in faults], 2):
        first, second = cells[view], cells[other]
        if first.shape == second.shape and np.abs(first - second).max() <= MAX_NOISE_LEVELS:
            faults[other] = f"shows the images of the view {view}"
    for view, means in cells.items():
        if view not in faults and len(means) > 1 and np.ptp(means, axis=0).max() <= MAX_NOISE_LEVELS:
            faults[view] = "never changes"
    return faults


def average_cells(frames: Frames) -> Array:
    """Average uint8 [T, H, W, 3] over the cells of a grid; smaller images have a cell per pixel."""
    means = frames.astype(np.float32)
    for axis, length in ((1, frames.shape[1]), (2, frames.shape[2])):
        edges = np.linspace(0, length, min(length, GRID_SIDE_CELLS) + 1)
        before = edges.astype(np.int64).clip(max=length - 1)
        pixels = np.moveaxis(means, axis, -1)
        sums = np.concatenate([np.zeros_like(pixels[..., :1]), pixels.cumsum(axis=-1)], axis=-1)
        sums_at_edges = sums[..., before] + (edges - before) * pixels[..., before]  # an edge can lie inside a pixel
        means = np.moveaxis(np.diff(sums_at_edges) / np.diff(edges), -1, axis).astype(np.float32)
    return means


def view_issues(source: EpisodeSource, index: int, faults: Mapping[str, str]) -> list[DataIssue]:
    """Return the faults of an episode's views as notes, which name the episode, the view and its file."""
    files, episodes = source.files(index), (source.meta[index].name,)
    issues = []
    for view, fault in faults.items():
        file = files[min(source.views.index(view), len(files) - 1)]  # one file can hold all views
        issues.append(DataIssue(file=file, message=f"the view {view} {fault}", episodes=episodes, is_note=True))
    return issues
