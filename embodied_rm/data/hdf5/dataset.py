"""Episodes whose images and columns are HDF5 datasets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from embodied_rm.data.hdf5.file import Hdf5Reader
from embodied_rm.data.issues import DataIssue, check_not_empty
from embodied_rm.data.source import EpisodeColumns, EpisodeMeta, check_finite, common_views, select_views
from embodied_rm.data.stride import stride_indices
from embodied_rm.types import Array, Episode, Views


@dataclass(frozen=True, kw_only=True)
class Hdf5EpisodeEntry:
    """One episode and the HDF5 datasets that contain it."""

    meta: EpisodeMeta
    path: Path
    views: Mapping[str, str]
    """View -> dataset uint8 [T, H, W, 3]."""
    state: tuple[str, ...]
    """Datasets [T, ...] that are concatenated to the state."""
    action: tuple[str, ...]
    """Datasets [T, ...] or [T - 1, ...]; there may be no action after the last frame."""
    fps: float
    height: int
    width: int


def with_episode_index(entry: Hdf5EpisodeEntry, episode_index: int) -> Hdf5EpisodeEntry:
    """Return the entry with its index among all stored episodes."""
    return replace(entry, meta=replace(entry.meta, episode_index=episode_index))


class Hdf5Dataset:
    """Episodes in HDF5 files, an `EpisodeSource`."""

    def __init__(
        self, path: Path, reader: Hdf5Reader, entries: Sequence[Hdf5EpisodeEntry], issues: Sequence[DataIssue]
    ) -> None:
        """Combine the readable episodes.

        Args:
            path: The dataset, for messages.
            reader: Reads the files.
            entries: The readable episodes.
            issues: Issues of the excluded episodes.

        Raises:
            DataError: There are no entries.
        """
        self.issues = tuple(issues)
        check_not_empty(path, entries, self.issues)
        self._reader, self._entries = reader, tuple(entries)
        self.views = common_views(entries[0].meta.name, [entry.views for entry in entries])
        self.fps = entries[0].fps
        self.meta = tuple(entry.meta for entry in entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Episode]:
        return (self.episode(i) for i in range(len(self)))

    def files(self, index: int) -> tuple[Path, ...]:
        """Return the file of an episode."""
        return (self._entries[index].path,)

    def image_size(self, index: int) -> tuple[int, int]:
        """Return the stored (height, width) of an episode's first view."""
        return self._entries[index].height, self._entries[index].width

    def frame_rate(self, index: int) -> float:
        """Return the frame rate of an episode, Hz."""
        return self._entries[index].fps

    def read_frames(
        self, index: int, start: int, stop: int, *, views: Sequence[str], size: tuple[int, int] | None
    ) -> Views:
        """Read frames of one episode; see `EpisodeSource.read_frames`."""
        entry = self._entries[index]
        view_names, frame_indices = select_views(views, self.views, entry.meta.name), range(start, stop)
        frames = [self._reader.read_images(entry.path, entry.views[view], frame_indices, size) for view in view_names]
        return Views(names=view_names, frames=np.stack(frames, axis=1))

    def episode(
        self,
        index: int,
        *,
        views: Sequence[str] | None = None,
        size: tuple[int, int] | None = None,
        stride: int = 1,
    ) -> Episode:
        """Read one episode; see `EpisodeSource.episode`."""
        entry = self._entries[index]
        frame_indices = stride_indices(entry.meta.length, stride)
        view_names = select_views(views, self.views, entry.meta.name)
        columns = self.columns(index).select(frame_indices)
        return Episode(
            name=entry.meta.name,
            views={
                view: self._reader.read_images(entry.path, entry.views[view], frame_indices, size)
                for view in view_names
            },
            instruction=entry.meta.instruction,
            fps=entry.fps / stride,
            success=entry.meta.success,
            state=columns.state,
            action=columns.action,
            metadata=entry.meta.metadata,
        )

    def columns(self, index: int) -> EpisodeColumns:
        """Return the numeric columns of one episode; see `EpisodeSource.columns`."""
        entry = self._entries[index]
        return EpisodeColumns(
            state=self._concat_datasets(entry, entry.state), action=self._concat_datasets(entry, entry.action)
        )

    def _concat_datasets(self, entry: Hdf5EpisodeEntry, datasets: Sequence[str]) -> Array | None:
        """Concatenate datasets to float32 [T, D]; None if there are none. The last row of a shorter dataset is
        repeated."""
        if not datasets:
            return None
        frame_indices = np.arange(entry.meta.length)
        columns = [self._reader.read_array(entry.path, name) for name in datasets]
        for name, column in zip(datasets, columns, strict=True):
            check_finite(column, name, entry.path)
        return np.concatenate([column[np.minimum(frame_indices, len(column) - 1)] for column in columns], axis=1)
