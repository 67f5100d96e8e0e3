"""Concatenation of several datasets in one folder."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from embodied_rm.data.common_views import common_views, find_left_out_views
from embodied_rm.data.issues import DataIssue, affected_episodes
from embodied_rm.data.source import EpisodeColumns, EpisodeMeta, EpisodeSource, ImageSize, select_views
from embodied_rm.types import Episode, Views


class ConcatDataset:
    """An `EpisodeSource` of the episodes of all datasets, sorted by dataset name.

    An episode is named `<dataset>/<episode>`; indices of episodes and frames are offset per dataset. Only views that
    all datasets have are kept; `DataError` if there are none.
    """

    def __init__(self, datasets: Mapping[str, EpisodeSource], path: Path) -> None:
        self._path = path
        dataset_names = sorted(datasets)
        self._datasets = [datasets[name] for name in dataset_names]
        named_views = [(name, datasets[name].views) for name in dataset_names]
        self.views = common_views(named_views)
        self.fps = self._datasets[0].fps
        issues = [
            replace(issue, episodes=tuple(f"{name}/{episode}" for episode in issue.episodes))
            for name, dataset in zip(dataset_names, self._datasets, strict=True)
            for issue in dataset.issues
        ]
        self.issues: tuple[DataIssue, ...] = (*issues, *find_left_out_views(path, named_views))
        self._offsets = np.cumsum([0, *map(len, self._datasets)])
        self.meta = tuple(_renumber(dataset_names, self._datasets))

    def __len__(self) -> int:
        return len(self.meta)

    def __iter__(self) -> Iterator[Episode]:
        return (self.episode(i) for i in range(len(self)))

    def files(self, index: int) -> tuple[Path, ...]:
        dataset, local_index = self._locate(index)
        files, dataset_views = dataset.files(local_index), tuple(dataset.views)
        return (*(files[dataset_views.index(view)] for view in self.views), *files[len(dataset_views) :])

    def image_size(self, index: int) -> ImageSize:
        dataset, local_index = self._locate(index)
        return dataset.image_size(local_index)

    def frame_rate(self, index: int) -> float:
        dataset, local_index = self._locate(index)
        return dataset.frame_rate(local_index)

    def columns(self, index: int) -> EpisodeColumns:
        dataset, local_index = self._locate(index)
        return dataset.columns(local_index)

    def read_frames(self, index: int, start: int, stop: int, *, views: Sequence[str], size: ImageSize | None) -> Views:
        dataset, local_index = self._locate(index)
        names = select_views(views, self.views, str(self._path))
        return dataset.read_frames(local_index, start, stop, views=names, size=size)

    def episode(self, index: int, *, views: Sequence[str] | None = None, **read_options: Any) -> Episode:
        dataset, local_index = self._locate(index)
        view_names = select_views(views, self.views, str(self._path))
        return replace(dataset.episode(local_index, views=view_names, **read_options), name=self.meta[index].name)

    def _locate(self, index: int) -> tuple[EpisodeSource, int]:
        """Return the dataset of an episode and the index in it."""
        dataset_index = int(np.searchsorted(self._offsets, index, side="right")) - 1
        return self._datasets[dataset_index], index - int(self._offsets[dataset_index])


def _renumber(dataset_names: Sequence[str], datasets: Sequence[EpisodeSource]) -> Iterator[EpisodeMeta]:
    """Offset the indices of all episodes. Excluded episodes count too, as far as their indices are known."""
    episode_offset = frame_offset = 0
    for name, dataset in zip(dataset_names, datasets, strict=True):
        next_index = 0
        for local_index, meta in enumerate(dataset.meta):
            from_index = next_index if meta.dataset_from_index is None else meta.dataset_from_index
            next_index = from_index + meta.length
            new_name, episode_index = f"{name}/{meta.name}", episode_offset + meta.index_in_dataset(local_index)
            dataset_index = frame_offset + from_index
            yield replace(meta, name=new_name, episode_index=episode_index, dataset_from_index=dataset_index)
        last_index = dataset.meta[-1].episode_index
        num_stored = len(dataset) + len(affected_episodes(dataset.issues))
        episode_offset += num_stored if last_index is None else max(last_index + 1, num_stored)
        frame_offset += next_index
