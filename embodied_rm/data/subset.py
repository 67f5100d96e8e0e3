"""Some episodes of a dataset."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from embodied_rm.data.source import EpisodeColumns, EpisodeSource, ImageSize, find_index
from embodied_rm.types import Episode, Views


class SubsetDataset:
    """An `EpisodeSource` of some episodes of another one, in the given order; indices in the dataset stay theirs."""

    def __init__(self, source: EpisodeSource, episode_indices: Sequence[int]) -> None:
        """Select episodes by their indices in the dataset, each once. `UserError` if one does not exist."""
        self._source = source
        self._rows = [find_index(source, index) for index in dict.fromkeys(episode_indices)]
        self.views, self.fps, self.issues = source.views, source.fps, source.issues
        self.meta = tuple(
            replace(source.meta[row], episode_index=source.meta[row].index_in_dataset(row)) for row in self._rows
        )

    def __len__(self) -> int:
        return len(self.meta)

    def __iter__(self) -> Iterator[Episode]:
        return (self.episode(i) for i in range(len(self)))

    def files(self, index: int) -> tuple[Path, ...]:
        return self._source.files(self._rows[index])

    def image_size(self, index: int) -> ImageSize:
        return self._source.image_size(self._rows[index])

    def frame_rate(self, index: int) -> float:
        return self._source.frame_rate(self._rows[index])

    def columns(self, index: int) -> EpisodeColumns:
        return self._source.columns(self._rows[index])

    def read_frames(self, index: int, start: int, stop: int, *, views: Sequence[str], size: ImageSize | None) -> Views:
        return self._source.read_frames(self._rows[index], start, stop, views=views, size=size)

    def episode(self, index: int, **read_options: Any) -> Episode:
        return self._source.episode(self._rows[index], **read_options)
