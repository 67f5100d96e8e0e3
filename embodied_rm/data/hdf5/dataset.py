"""Episodes whose pictures and numbers are HDF5 datasets, wherever in their files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from embodied_rm.data.faults import Fault, refuse_empty
from embodied_rm.data.hdf5.file import Hdf5
from embodied_rm.data.source import Columns, EpisodeMeta, chosen_views, refuse_not_finite, shared_views
from embodied_rm.data.stride import kept_frames
from embodied_rm.types import Array, Episode, Views


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One episode and the datasets that hold it."""

    meta: EpisodeMeta
    file: Path
    views: Mapping[str, str]
    """View -> dataset uint8 [T, H, W, 3]."""
    state: tuple[str, ...]
    """Datasets [T, ...] that make up the state."""
    action: tuple[str, ...]
    """Datasets [T, ...] or [T - 1, ...]: after the last frame nothing may have been done."""
    fps: float
    height: int
    width: int


def numbered(entry: Entry, number: int) -> Entry:
    """The entry with its number among all that are stored."""
    return replace(entry, meta=replace(entry.meta, number=number))


class Hdf5Dataset:
    """Episodes in HDF5 files, an `EpisodeSource`."""

    def __init__(self, where: Path, reader: Hdf5, entries: Sequence[Entry], faults: Sequence[Fault]) -> None:
        """`faults`: of episodes that are not among these. Raises `DataError` when nothing is left."""
        self.faults = tuple(faults)
        refuse_empty(where, entries, self.faults)
        self._reader, self._entries = reader, tuple(entries)
        self.views = shared_views(entries[0].meta.name, [entry.views for entry in entries])
        self.fps = entries[0].fps
        self.meta = tuple(entry.meta for entry in entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Episode]:
        return (self.episode(i) for i in range(len(self)))

    def files(self, index: int) -> tuple[Path, ...]:
        """The file of an episode."""
        return (self._entries[index].file,)

    def picture_size(self, index: int) -> tuple[int, int]:
        """(height, width) at which an episode's first view is stored."""
        return self._entries[index].height, self._entries[index].width

    def frame_rate(self, index: int) -> float:
        """Frames a second of an episode."""
        return self._entries[index].fps

    def moments(
        self, index: int, start: int, stop: int, *, views: Sequence[str], size: tuple[int, int] | None
    ) -> Views:
        """Read some frames of one episode; see `EpisodeSource.moments`."""
        entry = self._entries[index]
        names, rows = chosen_views(views, self.views, entry.meta.name), range(start, stop)
        frames = [self._reader.pictures(entry.file, entry.views[view], rows, size) for view in names]
        return Views(names=names, frames=np.stack(frames, axis=1))

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
        kept = kept_frames(entry.meta.length, stride)
        shown = chosen_views(views, self.views, entry.meta.name)
        columns = self.columns(index).kept(kept)
        return Episode(
            name=entry.meta.name,
            views={view: self._reader.pictures(entry.file, entry.views[view], kept, size) for view in shown},
            instruction=entry.meta.instruction,
            fps=entry.fps / stride,
            success=entry.meta.success,
            state=columns.state,
            action=columns.action,
            meta=entry.meta.text,
        )

    def columns(self, index: int) -> Columns:
        """The numbers of one episode; see `EpisodeSource.columns`."""
        entry = self._entries[index]
        return Columns(state=self._joined(entry, entry.state), action=self._joined(entry, entry.action))

    def _joined(self, entry: Entry, datasets: Sequence[str]) -> Array | None:
        """Datasets side by side, float32 [T, D]; None of none. The last row of a shorter one stands for the last frame
        as well."""
        if not datasets:
            return None
        rows = np.arange(entry.meta.length)
        columns = [self._reader.numbers(entry.file, name) for name in datasets]
        for name, column in zip(datasets, columns, strict=True):
            refuse_not_finite(column, name, entry.file)
        return np.concatenate([column[np.minimum(rows, len(column) - 1)] for column in columns], axis=1)
