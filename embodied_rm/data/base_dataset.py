"""The common part of the built-in datasets: episodes and blocks of frames from the images of one view."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np

from embodied_rm.data.issues import DataIssue
from embodied_rm.data.orientation import STORED, stored_size, turn
from embodied_rm.data.source import (
    EpisodeColumns,
    EpisodeMeta,
    ImageSize,
    resample_subtasks,
    select_views,
    stride_indices,
)
from embodied_rm.types import Episode, Frames, IntArray, Views


class BaseDataset(ABC):
    """An `EpisodeSource` that reads the frames of one view at a time; see there for the methods."""

    views: tuple[str, ...]
    fps: float
    meta: tuple[EpisodeMeta, ...]
    issues: tuple[DataIssue, ...]
    orientations: Mapping[str, str] = MappingProxyType({})
    """View -> how its stored images are turned (`orientation.ORIENTATIONS`); other views are as stored."""

    @abstractmethod
    def files(self, index: int) -> tuple[Path, ...]: ...

    @abstractmethod
    def _stored_image_size(self, index: int) -> ImageSize:
        """Return height and width of the stored images of the first view."""

    @abstractmethod
    def _read_view(self, index: int, view: str, frame_indices: IntArray, size: ImageSize | None) -> Frames:
        """Read frames of one view as stored, uint8 [T, H, W, 3]."""

    def _orientation(self, index: int, view: str) -> str:
        """Return how the stored images of a view of an episode are turned."""
        return self.orientations.get(view, STORED)

    def image_size(self, index: int) -> ImageSize:
        size = stored_size(self._stored_image_size(index), self._orientation(index, self.views[0]))
        assert size is not None
        return size

    def _frame_reader(self, index: int, view: str) -> Callable[[IntArray, ImageSize | None], Frames]:
        """Return how frames of one view are read in its orientation: (frame indices, size) -> uint8 [T, H, W, 3]."""
        read, orientation = partial(self._read_view, index, view), self._orientation(index, view)
        if orientation == STORED:
            return read
        return lambda frame_indices, size: turn(read(frame_indices, stored_size(size, orientation)), orientation)

    def __len__(self) -> int:
        return len(self.meta)

    def __iter__(self) -> Iterator[Episode]:
        return (self.episode(i) for i in range(len(self)))

    def frame_rate(self, index: int) -> float:
        return self.fps

    def columns(self, index: int) -> EpisodeColumns:
        return EpisodeColumns()

    def read_frames(self, index: int, start: int, stop: int, *, views: Sequence[str], size: ImageSize | None) -> Views:
        names, frame_indices = select_views(views, self.views, self.meta[index].name), np.arange(start, stop)
        frames = [self._frame_reader(index, view)(frame_indices, size) for view in names]
        return Views(names=names, frames=np.stack(frames, axis=1))

    def episode(
        self, index: int, *, views: Sequence[str] | None = None, size: ImageSize | None = None, stride: int = 1
    ) -> Episode:
        meta = self.meta[index]
        frame_indices = stride_indices(meta.length, stride)
        names = select_views(views, self.views, meta.name)
        subtasks, columns = meta.subtasks, self.columns(index)
        if stride > 1:
            subtasks, columns = resample_subtasks(subtasks, frame_indices), columns.select(frame_indices)
        return Episode(
            name=meta.name,
            views={view: self._frame_reader(index, view)(frame_indices, size) for view in names},
            instruction=meta.instruction,
            fps=self.frame_rate(index) / stride,
            subtasks=subtasks,
            success=meta.success,
            metadata=meta.metadata,
            **vars(columns),
        )
