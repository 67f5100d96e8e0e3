"""Open a dataset from Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.open_dataset import open_dataset as open_source
from embodied_rm.data.source import EpisodeSource
from embodied_rm.models.encoders import resize_episode
from embodied_rm.paths import resolve_dataset
from embodied_rm.types import Episode


def open_dataset(
    path: str | Path, *, instruction: str | None = None, features: FeatureMap | None = None
) -> EpisodeSource:
    """Open episodes of any layout: LeRobot v2.1 and v3.0, mp4 files, tables of them, robomimic, Minari.

    Args:
        path: A folder or an HDF5 file; "hub:owner/name" for a dataset on the Hugging Face Hub.
        instruction: The instruction of plain recordings that have none.
        features: Names of stored views and columns, where they differ from the ones that a model knows.

    Returns:
        An iterable of `Episode`. `len(data)`, `data.meta` and `data.issues` decode nothing; `data.issues` lists the
        episodes that are left out, and why.

    Raises:
        DataError: Naming the file and its fault, or the layouts that were looked for.
    """
    return open_source(resolve_dataset(Path(path)), instruction, features or FeatureMap())


def read_at_size(data: Iterable[Episode], size: tuple[int, int]) -> Iterator[Episode]:
    """Yield the episodes with every view at (height, width); a dataset resizes while it decodes."""
    if hasattr(data, "episode"):
        source: EpisodeSource = data  # type: ignore[assignment]
        yield from (source.episode(row, size=size) for row in range(len(source)))
        return
    for episode in data:
        yield resize_episode(episode, tuple(episode.views), size)
