"""What every collection of episodes offers, whatever it is stored as."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from embodied_rm.data.issues import DataIssue
from embodied_rm.errors import DataError, UserError, unknown_name_message
from embodied_rm.types import Array, Episode, IntArray, Subtask, Views

MAX_NAME_CHARS = 200
"""Letters of an episode's name; files are named after it."""


@dataclass(frozen=True, kw_only=True)
class EpisodeMeta:
    """What is known of a stored episode without decoding a frame."""

    name: str
    length: int
    """Frames stored."""
    instruction: str
    success: bool | None = None
    subtasks: tuple[Subtask, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Free text columns, e.g. {"task": "open_drawer", "outcome": "drop"}."""
    episode_index: int | None = None
    """Its number among all that are stored, those that are left out too. None: its place among those that are not."""
    dataset_from_index: int | None = None
    """The number of its first frame, counted likewise."""

    def __post_init__(self) -> None:
        """Raises `DataError` for a name that would lead out of a folder: files are named after episodes."""
        parts = self.name.split("/")
        if not set(parts).isdisjoint(("", ".", "..")) or any(char in "\\:" or ord(char) < 32 for char in self.name):
            raise DataError(f"{self.name!r} is no name of an episode: files are named after it")
        if len(self.name) > MAX_NAME_CHARS:
            raise DataError(f"the name of an episode has {len(self.name)} letters: {self.name[:40]!r}...")


@dataclass(frozen=True, kw_only=True)
class EpisodeColumns:
    """What is stored of an episode beside its images, a finite row a frame; None: it is not stored."""

    state: Array | None = None
    """float32 [T, S]."""
    action: Array | None = None
    """float32 [T, A]."""
    progress: Array | None = None
    """float32 [T]."""

    def select(self, frame_indices: IntArray) -> EpisodeColumns:
        """Some of the rows."""
        return EpisodeColumns(
            **{name: None if column is None else column[frame_indices] for name, column in vars(self).items()}
        )


class EpisodeSource(Protocol):
    """Stored episodes: their metadata at once, their frames on demand."""

    views: tuple[str, ...]
    """Views that every episode has."""
    fps: float
    meta: tuple[EpisodeMeta, ...]
    issues: tuple[DataIssue, ...]
    """What was found wrong when it was opened. The episodes that these name are left out, and those alone."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Episode]: ...

    def files(self, index: int) -> tuple[Path, ...]:
        """The files that an episode is read from: what it shows in the order of `views`, then what else it holds."""
        ...

    def image_size(self, index: int) -> tuple[int, int]:
        """(height, width) at which an episode's first view is stored."""
        ...

    def frame_rate(self, index: int) -> float:
        """Frames a second of an episode."""
        ...

    def columns(self, index: int) -> EpisodeColumns:
        """The numbers of an episode. Raises `DataError` as `episode` does."""
        ...

    def read_frames(
        self, index: int, start: int, stop: int, *, views: Sequence[str], size: tuple[int, int] | None
    ) -> Views:
        """The frames [start, stop) of one episode, a row a frame, resized to (height, width) while decoding.

        None: as they are stored; views of different sizes must then be asked for one by one. Read in order,
        one call goes on where the last one ended. Raises `DataError` as `episode` does.
        """
        ...

    def episode(
        self,
        index: int,
        *,
        views: Sequence[str] | None = None,
        size: tuple[int, int] | None = None,
        stride: int = 1,
    ) -> Episode:
        """Read one episode: the given views (default: all), resized to (height, width) while decoding.

        `stride` keeps every `stride`-th frame and the last; fps, steps and columns follow (`stride.kept_frames`).
        Raises `DataError` naming the file and its fault, or the view and those there are.
        """
        ...


def common_views(name: str, views_per_episode: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The views that all recordings have, each given by its views; `name`: of the first, which has others. Raises
    `DataError` where they have none in common."""
    first, *others = views_per_episode
    common = tuple(view for view in first if all(view in other for other in others))
    if not common:
        raise DataError(f"{name} and the other recordings have no view in common; it has {', '.join(first)}")
    return common


def find_index(source: EpisodeSource, episode_index: int) -> int:
    """Where among a source's episodes the one is that has a number in the dataset. Raises `UserError` when it is not
    there, or was left out."""
    for index, meta in enumerate(source.meta):
        if episode_index == (index if meta.episode_index is None else meta.episode_index):
            return index
    hint = "; it was left out: embodied-rm inspect says why" if source.issues else ""
    raise UserError(f"there is no episode {episode_index} among the {len(source)} that can be read{hint}")


def check_finite(values: Array, name: str, source: object) -> None:
    """Raises `DataError` naming the first frame of [T, D] that holds a number which is none."""
    bad_frames = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(bad_frames):
        raise DataError(f"{source}: {name} is not finite at frame {bad_frames[0]}")


def select_views(requested: Sequence[str] | None, available: Sequence[str], source: str) -> tuple[str, ...]:
    """The views to read, or a `DataError` naming the one that is not there."""
    if requested is None:
        return tuple(available)
    for view in requested:
        if view not in available:
            raise DataError(f"{source}: {unknown_name_message(view, available, 'view')}")
    if not requested:
        raise DataError(f"{source}: no view was asked for; available: {', '.join(available)}")
    return tuple(requested)
