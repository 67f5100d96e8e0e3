"""Episodes whose images and columns are HDF5 datasets."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from embodied_rm.data.base_dataset import BaseDataset
from embodied_rm.data.common_views import common_views, find_left_out_views
from embodied_rm.data.hdf5.file import Hdf5Reader
from embodied_rm.data.issues import DataIssue, check_not_empty, list_names
from embodied_rm.data.orientation import STORED
from embodied_rm.data.source import EpisodeColumns, EpisodeMeta, ImageSize, check_finite
from embodied_rm.types import Array, Frames, IntArray


@dataclass(frozen=True, kw_only=True)
class Hdf5EpisodeEntry:
    """One episode and the HDF5 datasets that contain it."""

    meta: EpisodeMeta
    path: Path
    views: Mapping[str, str]  # view -> dataset uint8 [T, H, W, 3]
    state: tuple[str, ...]  # datasets [T, ...] that are concatenated to the state
    action: tuple[str, ...]  # datasets [T, ...] or [T - 1, ...]; there may be no action after the last frame
    fps: float
    image_size: ImageSize
    orientation: str = STORED  # how images are turned, unless `BaseDataset.orientations` has their view
    notes: tuple[str, ...] = ()  # clauses on what is stored and not read


class Hdf5Dataset(BaseDataset):
    """Readable episodes in HDF5 files by their index among all stored ones, an `EpisodeSource`; `path` for messages."""

    def __init__(
        self, path: Path, reader: Hdf5Reader, entries: Mapping[int, Hdf5EpisodeEntry], issues: Sequence[DataIssue]
    ) -> None:
        self._reader, self._entries = reader, tuple(entries.values())
        check_not_empty(path, self._entries, issues)
        self.meta = tuple(replace(entry.meta, episode_index=index) for index, entry in entries.items())
        named_views = [(entry.meta.name, entry.views) for entry in self._entries]
        self.views = common_views(named_views)
        self.issues = (*issues, *_collect_notes(self._entries), *find_left_out_views(path, named_views))
        self.fps = self._entries[0].fps

    def files(self, index: int) -> tuple[Path, ...]:
        return (self._entries[index].path,)

    def _stored_image_size(self, index: int) -> ImageSize:
        return self._entries[index].image_size

    def _orientation(self, index: int, view: str) -> str:
        return self.orientations.get(view, self._entries[index].orientation)

    def frame_rate(self, index: int) -> float:
        return self._entries[index].fps

    def _read_view(self, index: int, view: str, frame_indices: IntArray, size: ImageSize | None) -> Frames:
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


def _collect_notes(entries: Sequence[Hdf5EpisodeEntry]) -> list[DataIssue]:
    """Return an issue per file and note, which names the episodes with it unless these are all of the file."""
    counts = Counter(entry.path for entry in entries)
    names_by_note: dict[tuple[Path, str], list[str]] = {}
    for entry in entries:
        for note in entry.notes:
            names_by_note.setdefault((entry.path, note), []).append(entry.meta.name)
    issues = []
    for (path, note), names in names_by_note.items():
        subject = f"{list_names(names)}: " if len(names) < counts[path] else ""
        issues.append(DataIssue(file=path, message=subject + note, episodes=()))
    return issues
