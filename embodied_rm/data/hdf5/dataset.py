"""Episodes whose images and columns are HDF5 datasets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from embodied_rm.data.base_dataset import BaseDataset
from embodied_rm.data.hdf5.file import Hdf5Reader
from embodied_rm.data.issues import DataIssue, check_not_empty
from embodied_rm.data.source import EpisodeColumns, EpisodeMeta, check_finite, common_views
from embodied_rm.types import Array, Frames, IntArray


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


class Hdf5Dataset(BaseDataset):
    """Readable episodes in HDF5 files, an `EpisodeSource`; `path` is for messages."""

    def __init__(
        self, path: Path, reader: Hdf5Reader, entries: Sequence[Hdf5EpisodeEntry], issues: Sequence[DataIssue]
    ) -> None:
        self.issues = tuple(issues)
        check_not_empty(path, entries, self.issues)
        self._reader, self._entries = reader, tuple(entries)
        self.views = common_views(entries[0].meta.name, [entry.views for entry in entries])
        self.fps = entries[0].fps
        self.meta = tuple(entry.meta for entry in entries)

    def files(self, index: int) -> tuple[Path, ...]:
        return (self._entries[index].path,)

    def image_size(self, index: int) -> tuple[int, int]:
        return self._entries[index].height, self._entries[index].width

    def frame_rate(self, index: int) -> float:
        return self._entries[index].fps

    def _read_view(self, index: int, view: str, frame_indices: IntArray, size: tuple[int, int] | None) -> Frames:
        entry = self._entries[index]
        return self._reader.read_images(entry.path, entry.views[view], frame_indices, size)

    def columns(self, index: int) -> EpisodeColumns:
        entry = self._entries[index]
        state, action = (self._concat_datasets(entry, names) for names in (entry.state, entry.action))
        return EpisodeColumns(state=state, action=action)

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
