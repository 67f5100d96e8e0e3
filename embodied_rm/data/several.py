"""Several datasets as one: a folder of them, read one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from embodied_rm.data.faults import Fault, named
from embodied_rm.data.source import Columns, EpisodeMeta, EpisodeSource, chosen_views, shared_views
from embodied_rm.types import Episode, Views


class Several:
    """An `EpisodeSource` of the episodes of all `parts`, by name, in the order of their names; an episode is called
    `<part>/<its name>`, and episodes and frames are counted through. Its views are those that all parts have.

    Raises `DataError` where they have no view in common.
    """

    def __init__(self, parts: Mapping[str, EpisodeSource], where: Path) -> None:
        self._where = where
        self._parts = [parts[name] for name in sorted(parts)]
        names = sorted(parts)
        self.views = shared_views(names[0], [dict.fromkeys(part.views) for part in self._parts])
        self.fps = self._parts[0].fps
        self.faults: tuple[Fault, ...] = tuple(
            replace(fault, episodes=tuple(f"{name}/{episode}" for episode in fault.episodes))
            for name, part in zip(names, self._parts, strict=True)
            for fault in part.faults
        )
        self._starts = np.cumsum([0, *map(len, self._parts)])
        self.meta = tuple(_counted(names, self._parts))

    def __len__(self) -> int:
        return len(self.meta)

    def __iter__(self) -> Iterator[Episode]:
        return (self.episode(i) for i in range(len(self)))

    def files(self, index: int) -> tuple[Path, ...]:
        part, row = self._place(index)
        files, every = part.files(row), tuple(part.views)
        return (*(files[every.index(view)] for view in self.views), *files[len(every) :])

    def picture_size(self, index: int) -> tuple[int, int]:
        part, row = self._place(index)
        return part.picture_size(row)

    def frame_rate(self, index: int) -> float:
        part, row = self._place(index)
        return part.frame_rate(row)

    def columns(self, index: int) -> Columns:
        part, row = self._place(index)
        return part.columns(row)

    def moments(
        self, index: int, start: int, stop: int, *, views: Sequence[str], size: tuple[int, int] | None
    ) -> Views:
        part, row = self._place(index)
        return part.moments(row, start, stop, views=chosen_views(views, self.views, str(self._where)), size=size)

    def episode(self, index: int, *, views: Sequence[str] | None = None, **how: Any) -> Episode:
        part, row = self._place(index)
        chosen = chosen_views(views, self.views, str(self._where))
        return replace(part.episode(row, views=chosen, **how), name=self.meta[index].name)

    def _place(self, index: int) -> tuple[EpisodeSource, int]:
        """The part that an episode is of, and where in it."""
        which = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self._parts[which], index - int(self._starts[which])


def _counted(names: Sequence[str], parts: Sequence[EpisodeSource]) -> Iterator[EpisodeMeta]:
    """What is known of every episode; those left out have their numbers too, where that is known of them."""
    episodes = frames = 0
    for name, part in zip(names, parts, strict=True):
        next_frame = 0
        for row, meta in enumerate(part.meta):
            number = row if meta.number is None else meta.number
            first = next_frame if meta.first is None else meta.first
            next_frame = first + meta.length
            yield replace(meta, name=f"{name}/{meta.name}", number=episodes + number, first=frames + first)
        last = part.meta[-1].number
        stored = len(part) + len(named(part.faults))
        episodes += stored if last is None else max(last + 1, stored)
        frames += next_frame
