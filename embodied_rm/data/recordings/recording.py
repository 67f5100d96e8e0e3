"""The files and annotations of one recorded trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from embodied_rm.data.dataset_files import read_json
from embodied_rm.errors import DataError, UserError
from embodied_rm.types import Subtask


@dataclass(frozen=True, kw_only=True)
class Recording:
    """One recorded trial."""

    name: str
    videos: Mapping[str, Path]
    """View name -> mp4."""
    instruction: str
    subtasks: Path | tuple[Subtask, ...] = ()
    """Annotated subtasks, or their file (see `read_subtasks`); empty without annotation."""
    success: bool | None = None
    episode_index: int | None = None
    """See `EpisodeMeta.episode_index`."""
    metadata: Mapping[str, str] | None = None
    """See `EpisodeMeta.metadata`."""


def read_subtasks(path: Path, length: int) -> tuple[Subtask, ...]:
    """Read subtasks from a list of {"annotation" (or "anotation"), "start_frame_id", "end_frame_id" (excluded)}."""
    subtasks: list[Subtask] = []
    for i, entry in enumerate(read_json(path, "JSON", list)):
        try:
            name = entry["annotation"] if "annotation" in entry else entry["anotation"]
            subtask = Subtask(name=str(name), start=int(entry["start_frame_id"]), end=int(entry["end_frame_id"]))
        except (KeyError, TypeError, ValueError) as error:
            reason = str(error) if isinstance(error, UserError) else f"it lacks or misstates {error}"
            raise DataError(f"{path}: entry {i}: {reason}") from None
        subtasks.append(subtask)
    check_subtasks(subtasks, length, path)
    return tuple(subtasks)


def check_subtasks(subtasks: list[Subtask] | tuple[Subtask, ...], length: int, source: Path | str) -> None:
    """Raise `DataError` for subtasks that overlap or end after the last frame."""
    for previous, current in pairwise(subtasks):
        if current.start < previous.end:
            name, start = current.name, current.start
            raise DataError(f"{source}: subtask {name!r} starts at {start}, before {previous.name!r} ends")
    for subtask in subtasks:
        if subtask.end > length:
            raise DataError(f"{source}: subtask {subtask.name!r} ends at frame {subtask.end}, the videos have {length}")
