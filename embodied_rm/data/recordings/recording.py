"""The plain files of one recorded trial, and what was said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from embodied_rm.data.json_file import read_json
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
    """Annotated sub-tasks, or the file that holds them (`read_steps`); empty: nobody annotated it."""
    success: bool | None = None
    episode_index: int | None = None
    """See `EpisodeMeta.number`."""
    metadata: Mapping[str, str] | None = None
    """Free text, see `EpisodeMeta.text`."""


def load_subtasks(recording: Recording, length: int) -> tuple[Subtask, ...]:
    """Its annotated steps, checked against its length in frames. Raises `DataError` naming what does not fit."""
    if isinstance(recording.subtasks, Path):
        return read_subtasks(recording.subtasks, length)
    check_subtasks(recording.subtasks, length, recording.name)
    return recording.subtasks


def read_subtasks(path: Path, length: int) -> tuple[Subtask, ...]:
    """The steps of a recording of `length` frames from a list of {"annotation" (or "anotation"), "start_frame_id",
    "end_frame_id" (excluded)}. Raises `DataError` naming the file and the entry."""
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
    """Raises `DataError` for steps that overlap or end after the last frame."""
    for previous, current in pairwise(subtasks):
        if current.start < previous.end:
            raise DataError(f"{source}: step {current.name!r} starts at {current.start}, before {previous.name!r} ends")
    for subtask in subtasks:
        if subtask.end > length:
            raise DataError(f"{source}: step {subtask.name!r} ends at frame {subtask.end}, the videos have {length}")
