"""The interface of all episode collections, independent of their storage, and the selection of views and frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np

from embodied_rm.data.issues import DataIssue
from embodied_rm.data.names import check_name, check_text
from embodied_rm.errors import DataError, UserError, unknown_name_message
from embodied_rm.types import Array, Episode, IntArray, Subtask, Views

ImageSize = tuple[int, int]
"""(height, width)."""
MAX_EPISODE_FRAMES = 1_000_000
"""Maximum number of frames of an episode: a file can state any number without storing them."""

MAX_CAPTION_CHARS = 120
"""Maximum length of the text above an image; the time to draw a text grows with its length."""

MAX_RATE_DEVIATION = 0.01
"""Share by which frame rates that count as one may differ."""


@dataclass(frozen=True, kw_only=True)
class EpisodeMeta:
    """Metadata of a stored episode, available without decoding a frame."""

    name: str
    length: int
    """Number of stored frames."""
    instruction: str
    success: bool | None = None
    subtasks: tuple[Subtask, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Free text columns, e.g. {"task": "open_drawer", "outcome": "drop"}."""
    episode_index: int | None = None
    """Index among all stored episodes, including excluded ones; None: the position in the source."""
    dataset_from_index: int | None = None
    """Index of its first frame among all stored frames, including those of excluded episodes."""

    def index_in_dataset(self, row: int) -> int:
        """Return the index among all stored episodes; `row` is the position in the source."""
        return row if self.episode_index is None else self.episode_index

    @property
    def caption(self) -> str:
        """Name and instruction in one printable line, cut at `MAX_CAPTION_CHARS`."""
        text = f"{self.name}: {' '.join(self.instruction.split())}"
        if len(text) > MAX_CAPTION_CHARS:
            text = f"{text[: MAX_CAPTION_CHARS - 1]}\N{HORIZONTAL ELLIPSIS}"
        return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)

    def __post_init__(self) -> None:
        """Raise `DataError` for a name that leads out of a folder, texts that no file can store, and bad subtasks."""
        check_name(self.name, "episode name")
        check_text(self.instruction, f"the instruction of {self.name}")
        for text in (*(subtask.name for subtask in self.subtasks), *self.metadata, *self.metadata.values()):
            check_text(text, f"a text of {self.name}")
        if not 0 < self.length <= MAX_EPISODE_FRAMES:
            raise DataError(f"{self.name} has {self.length} frames, 1 to {MAX_EPISODE_FRAMES} are possible")
        check_subtasks(self.subtasks, self.length, self.name)


@dataclass(frozen=True, kw_only=True)
class EpisodeColumns:
    """Numeric columns of an episode, finite, one row per frame; None: not stored."""

    state: Array | None = None
    """float32 [T, S]."""
    action: Array | None = None
    """float32 [T, A]."""
    progress: Array | None = None
    """float32 [T]."""

    def select(self, frame_indices: IntArray) -> EpisodeColumns:
        """Select frames."""
        columns = {name: column[frame_indices] for name, column in vars(self).items() if column is not None}
        return EpisodeColumns(**columns)


class EpisodeSource(Protocol):
    """Stored episodes: metadata at once, frames on demand."""

    views: tuple[str, ...]
    """Views that every episode has."""
    fps: float
    meta: tuple[EpisodeMeta, ...]
    issues: tuple[DataIssue, ...]
    """Issues found while opening; exactly the episodes they name are excluded."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Episode]: ...

    def files(self, index: int) -> tuple[Path, ...]:
        """Return the files of an episode: the videos in the order of `views`, then the others."""
        ...

    def image_size(self, index: int) -> ImageSize:
        """Return the stored (height, width) of an episode's first view."""
        ...

    def frame_rate(self, index: int) -> float:
        """Return the frame rate of an episode, Hz."""
        ...

    def columns(self, index: int) -> EpisodeColumns:
        """Return the numeric columns of an episode.

        Raises:
            DataError: They cannot be read.
        """
        ...

    def read_frames(self, index: int, start: int, stop: int, *, views: Sequence[str], size: ImageSize | None) -> Views:
        """Read the frames [start, stop) of one episode, one row per frame.

        Sequential calls continue decoding without a seek.

        Args:
            index: The episode.
            start: First frame.
            stop: End of the frames, excluded.
            views: Views to read, in this order.
            size: (height, width) to resize to while decoding; None: as stored, which requires views of equal size.

        Raises:
            DataError: As `episode`.
        """
        ...

    def episode(
        self, index: int, *, views: Sequence[str] | None = None, size: ImageSize | None = None, stride: int = 1
    ) -> Episode:
        """Read one episode.

        Args:
            index: The episode.
            views: Views to read; None: all.
            size: (height, width) to resize to while decoding; None: as stored.
            stride: Read every `stride`-th frame and the last one; fps, subtasks and columns are adapted.

        Raises:
            DataError: A file cannot be read, or a view does not exist. The message names the file and the issue.
        """
        ...


def equal_rates(rate: float, other: float) -> bool:
    """Return whether two frame rates (Hz) count as one: containers round times, and cameras have own clocks."""
    return abs(rate - other) <= MAX_RATE_DEVIATION * other


def find_index(source: EpisodeSource, episode_index: int) -> int:
    """Return the index in the source of the episode with an index in the dataset."""
    for index, meta in enumerate(source.meta):
        if episode_index == meta.index_in_dataset(index):
            return index
    hint = "; it was excluded, embodied-rm inspect lists the reason" if source.issues else ""
    raise UserError(f"episode {episode_index} is not among the {len(source)} readable episodes{hint}")


def check_subtasks(subtasks: Sequence[Subtask], length: int, source: Path | str) -> None:
    """Raise `DataError` for subtasks that overlap or end after the last frame."""
    for previous, current in pairwise(subtasks):
        if current.start < previous.end:
            name, start = current.name, current.start
            raise DataError(f"{source}: subtask {name!r} starts at {start}, before {previous.name!r} ends")
    for subtask in subtasks:
        if subtask.end > length:
            raise DataError(f"{source}: subtask {subtask.name!r} ends at frame {subtask.end}, the videos have {length}")


def check_finite(values: Array, name: str, source: object) -> None:
    """Raise `DataError` naming the first frame of [T, D] with a NaN or infinite value."""
    bad_frames = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(bad_frames):
        raise DataError(f"{source}: {name} is not finite at frame {bad_frames[0]}")


def select_views(requested: Sequence[str] | None, available: Sequence[str], source: str) -> tuple[str, ...]:
    """Return the views to read; None: all."""
    if requested is None:
        return tuple(available)
    for view in requested:
        if view not in available:
            raise DataError(f"{source}: {unknown_name_message(view, available, 'view')}")
    if not requested:
        raise DataError(f"{source}: no view is requested; available: {', '.join(available)}")
    return tuple(requested)


def stride_indices(length: int, stride: int) -> IntArray:
    """Return indices of every `stride`-th frame and of the last one, which shows the outcome."""
    if stride < 1:
        raise DataError(f"stride must be >= 1, got {stride}")
    frame_indices = np.arange(0, length, stride, dtype=np.int64)
    return frame_indices if frame_indices[-1] == length - 1 else np.append(frame_indices, length - 1)


def subtask_stride(meta: EpisodeMeta, stride: int) -> int:
    """Return the largest stride up to `stride` by which each annotated subtask of an episode keeps a frame."""
    return min([stride, *(subtask.end - subtask.start for subtask in meta.subtasks)])


def resample_subtasks(subtasks: Sequence[Subtask], frame_indices: IntArray) -> tuple[Subtask, ...]:
    """Convert subtasks to indices of the selected frames. `DataError`: one contains no selected frame."""
    resampled = []
    for subtask in subtasks:
        start, end = (int(i) for i in np.searchsorted(frame_indices, [subtask.start, subtask.end]))
        if start == end:
            span = f"which lasts from frame {subtask.start} to {subtask.end - 1}"
            raise DataError(f"the stride is too large: it keeps no frame of subtask {subtask.name!r}, {span}")
        resampled.append(Subtask(name=subtask.name, start=start, end=end))
    return tuple(resampled)
