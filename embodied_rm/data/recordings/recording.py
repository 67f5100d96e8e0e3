"""The plain files of one recorded trial, and what was said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from embodied_rm.data.json_file import read_json
from embodied_rm.errors import DataError, UserError
from embodied_rm.types import Step


@dataclass(frozen=True, kw_only=True)
class Recording:
    """One recorded trial."""

    name: str
    videos: Mapping[str, Path]
    """View name -> mp4."""
    instruction: str
    steps: Path | tuple[Step, ...] = ()
    """Annotated sub-tasks, or the file that holds them (`read_steps`); empty: nobody annotated it."""
    success: bool | None = None
    number: int | None = None
    """See `EpisodeMeta.number`."""
    text: Mapping[str, str] | None = None
    """Free text, see `EpisodeMeta.text`."""


def steps_of(recording: Recording, length: int) -> tuple[Step, ...]:
    """Its annotated steps, checked against its length in frames. Raises `DataError` naming what does not fit."""
    if isinstance(recording.steps, Path):
        return read_steps(recording.steps, length)
    check_order(recording.steps, length, recording.name)
    return recording.steps


def read_steps(path: Path, length: int) -> tuple[Step, ...]:
    """The steps of a recording of `length` frames from a list of {"annotation" (or "anotation"), "start_frame_id",
    "end_frame_id" (excluded)}. Raises `DataError` naming the file and the entry."""
    steps: list[Step] = []
    for i, entry in enumerate(read_json(path, "JSON", list)):
        try:
            name = entry["annotation"] if "annotation" in entry else entry["anotation"]
            step = Step(name=str(name), start=int(entry["start_frame_id"]), end=int(entry["end_frame_id"]))
        except (KeyError, TypeError, ValueError) as error:
            reason = str(error) if isinstance(error, UserError) else f"it lacks or misstates {error}"
            raise DataError(f"{path}: entry {i}: {reason}") from None
        steps.append(step)
    check_order(steps, length, path)
    return tuple(steps)


def check_order(steps: list[Step] | tuple[Step, ...], length: int, where: Path | str) -> None:
    """Raises `DataError` for steps that overlap or end after the last frame."""
    for before, after in pairwise(steps):
        if after.start < before.end:
            raise DataError(f"{where}: step {after.name!r} starts at {after.start}, before {before.name!r} ends")
    for step in steps:
        if step.end > length:
            raise DataError(f"{where}: step {step.name!r} ends at frame {step.end}, the videos have {length}")
