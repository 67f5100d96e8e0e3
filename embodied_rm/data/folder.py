"""A recording given as one mp4 per view, with or without annotated sub-tasks: an episode out of plain files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from embodied_rm.data.source import EpisodeMeta, chosen_views
from embodied_rm.data.stride import kept_frames, thin_steps
from embodied_rm.data.video.decoder import Decoder, VideoInfo
from embodied_rm.data.video.mp4 import check_file
from embodied_rm.errors import DataError, UserError
from embodied_rm.types import Episode, Step, Views

ANNOTATION = "annotated_keyframes.json"
"""A list of {"annotation" (or "anotation"), "start_frame_id", "end_frame_id" (excluded)}, in order."""
INSTRUCTION = "task_instruction.json"
"""A list of phrasings of the instruction, in the recording's folder or the one above; the first one is used."""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """The files of one recorded trial."""

    name: str
    videos: Mapping[str, Path]
    """View name -> mp4."""
    instruction: str
    annotation: Path | None = None
    """An `ANNOTATION` file; None: nobody annotated it."""

    @classmethod
    def in_folder(cls, folder: Path | str, instruction: str | None = None) -> Recording:
        """The recording in a folder: every `<view>.mp4`, and the annotation and instruction if they are there.

        Raises `DataError` when there is no mp4, or no instruction is given or found.
        """
        folder = Path(folder)
        videos = {path.stem: path for path in sorted(folder.glob("*.mp4"))}
        if not videos:
            raise DataError(f"{folder}: no mp4 files there (one per view was expected)")
        annotation = folder / ANNOTATION
        return cls(
            name=folder.absolute().name,
            videos=videos,
            instruction=_instruction(folder) if instruction is None else instruction,
            annotation=annotation if annotation.exists() else None,
        )


class Recordings:
    """Recordings given as plain mp4 files, an `EpisodeSource`.

    Opening probes every video; `DataError` names a file and its fault, or the two views whose lengths differ.
    Views that not all recordings have are left out. Success is unknown.
    """

    def __init__(self, recordings: Sequence[Recording]) -> None:
        if not recordings:
            raise DataError("no recordings were given")
        self._recordings = tuple(recordings)
        self._decoder = Decoder()
        self._infos = [_probe(recording, self._decoder) for recording in recordings]
        shared = [view for view in recordings[0].videos if all(view in other.videos for other in recordings)]
        if not shared:
            raise DataError(
                f"{recordings[0].name} and the other recordings have no view in common; "
                f"it has {', '.join(recordings[0].videos)}"
            )
        self.views = tuple(shared)
        self.fps = self._infos[0][shared[0]].fps
        self.meta = tuple(_meta(*pair) for pair in zip(self._recordings, self._infos, strict=True))

    def __len__(self) -> int:
        return len(self._recordings)

    def __iter__(self) -> Iterator[Episode]:
        return (self.episode(i) for i in range(len(self)))

    def picture_size(self, index: int) -> tuple[int, int]:
        """(height, width) at which an episode's first view is stored."""
        info = self._infos[index][self.views[0]]
        return info.height, info.width

    def frame_rate(self, index: int) -> float:
        """Frames a second of a recording."""
        return self._infos[index][self.views[0]].fps

    def moments(self, index: int, start: int, stop: int, *, views: Sequence[str], size: tuple[int, int]) -> Views:
        """Read some frames of one recording; see `EpisodeSource.moments`."""
        names = chosen_views(views, self.views, self.meta[index].name)
        paths, infos = self._recordings[index].videos, self._infos[index]
        frames = [self._decoder.read(paths[v], infos[v].times[start:stop], infos[v].fps, size) for v in names]
        return Views(names=names, frames=np.stack(frames, axis=1))

    def episode(
        self,
        index: int,
        *,
        views: Sequence[str] | None = None,
        size: tuple[int, int] | None = None,
        stride: int = 1,
    ) -> Episode:
        """Read one recording; see `EpisodeSource.episode`."""
        recording, infos, meta = self._recordings[index], self._infos[index], self.meta[index]
        kept = kept_frames(meta.length, stride)
        frames = {}
        for view in chosen_views(views, self.views, meta.name):
            info = infos[view]
            frames[view] = self._decoder.read(recording.videos[view], info.times[kept], info.fps, size)
        return Episode(
            name=meta.name,
            views=frames,
            instruction=meta.instruction,
            fps=self.frame_rate(index) / stride,
            steps=thin_steps(meta.steps, kept),
        )


def read_steps(path: Path, length: int) -> tuple[Step, ...]:
    """The annotated steps of a recording of `length` frames. Raises `DataError` naming the file and the entry."""
    entries = _read_list(path)
    steps: list[Step] = []
    for i, entry in enumerate(entries):
        try:
            name = entry["annotation"] if "annotation" in entry else entry["anotation"]
            step = Step(name=str(name), start=int(entry["start_frame_id"]), end=int(entry["end_frame_id"]))
        except (KeyError, TypeError, ValueError) as error:
            reason = str(error) if isinstance(error, UserError) else f"it lacks or misstates {error}"
            raise DataError(f"{path}: entry {i}: {reason}") from None
        if steps and step.start < steps[-1].end:
            raise DataError(f"{path}: step {step.name!r} starts at {step.start}, before {steps[-1].name!r} ends")
        if step.end > length:
            raise DataError(f"{path}: step {step.name!r} ends at frame {step.end}, the videos have {length}")
        steps.append(step)
    return tuple(steps)


def _instruction(folder: Path) -> str:
    """The first phrasing in the folder's instruction file, or in that of the folder above."""
    for path in (folder / INSTRUCTION, folder.absolute().parent / INSTRUCTION):
        if path.exists():
            phrasings = _read_list(path)
            if not phrasings or not isinstance(phrasings[0], str):
                raise DataError(f"{path}: a list of sentences was expected")
            return phrasings[0]
    raise DataError(f"{folder}: no instruction: give one, or put {INSTRUCTION} (a list of sentences) there or above")


def _read_list(path: Path) -> list[Any]:
    check_file(path, "JSON")
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise DataError(f"{path}: not valid JSON ({error})") from None
    if not isinstance(content, list):
        raise DataError(f"{path}: a JSON list was expected")
    return content


def _probe(recording: Recording, decoder: Decoder) -> dict[str, VideoInfo]:
    """What each view's file holds; all must be of one length and rate."""
    infos = {view: decoder.probe(path) for view, path in recording.videos.items()}
    first, *others = recording.videos
    for other in others:
        for what, here, there in (
            ("frames", len(infos[first]), len(infos[other])),
            ("frames a second", infos[first].fps, infos[other].fps),
        ):
            if here != there:
                a, b = recording.videos[first], recording.videos[other]
                raise DataError(f"{b}: has {there:g} {what}, but its sibling view {a} has {here:g}")
    return infos


def _meta(recording: Recording, infos: Mapping[str, VideoInfo]) -> EpisodeMeta:
    length = len(next(iter(infos.values())))
    steps = () if recording.annotation is None else read_steps(recording.annotation, length)
    return EpisodeMeta(name=recording.name, length=length, instruction=recording.instruction, steps=steps)
