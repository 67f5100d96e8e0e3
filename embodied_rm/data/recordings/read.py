"""Reads recordings given as plain mp4 files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from embodied_rm.data.faults import Fault, refuse_empty
from embodied_rm.data.names import AS_STORED, Names
from embodied_rm.data.recordings.recording import Recording, steps_of
from embodied_rm.data.source import Columns, EpisodeMeta, chosen_views, shared_views
from embodied_rm.data.stride import kept_frames, thin_steps
from embodied_rm.data.video.decoder import Decoder, VideoInfo
from embodied_rm.errors import DataError
from embodied_rm.types import Episode, Views


class Recordings:
    """Recordings given as plain mp4 files, an `EpisodeSource`.

    Opening probes every video. Recordings with a fault are left out, and `faults` says which and why: a file that
    cannot be read, two views whose lengths differ, steps that do not fit. Views that not all the others have are left
    out too. Raises `DataError` when no recording is left.
    """

    def __init__(
        self,
        recordings: Sequence[Recording],
        names: Names = AS_STORED,
        faults: Sequence[Fault] = (),
        where: Path = Path(),
    ) -> None:
        """`faults`: of recordings that are not among these; `where` they come from, for messages."""
        self._decoder = Decoder()
        self._recordings: list[Recording] = []
        self._infos: list[dict[str, VideoInfo]] = []
        meta: list[EpisodeMeta] = []
        found = [*faults, *_name_faults(recordings, where)]
        twice = {name for fault in found for name in fault.episodes}
        for recording in recordings:
            if recording.name in twice:
                continue
            try:
                named = _renamed(recording, names)
                infos = _probe(named, self._decoder)
                meta.append(_meta(named, infos))
            except DataError as error:
                found.append(Fault.told_by(error, (recording.name,)))
                continue
            self._recordings.append(named)
            self._infos.append(infos)
        self.faults = tuple(found)
        refuse_empty(where, self._recordings, self.faults)
        self.views = shared_views(self._recordings[0].name, [recording.videos for recording in self._recordings])
        self.fps = self._infos[0][self.views[0]].fps
        self.meta = tuple(meta)

    def __len__(self) -> int:
        return len(self._recordings)

    def __iter__(self) -> Iterator[Episode]:
        return (self.episode(i) for i in range(len(self)))

    def files(self, index: int) -> tuple[Path, ...]:
        """The films of a recording."""
        return tuple(self._recordings[index].videos[view] for view in self.views)

    def picture_size(self, index: int) -> tuple[int, int]:
        """(height, width) at which an episode's first view is stored."""
        info = self._infos[index][self.views[0]]
        return info.height, info.width

    def frame_rate(self, index: int) -> float:
        """Frames a second of a recording."""
        return self._infos[index][self.views[0]].fps

    def columns(self, index: int) -> Columns:
        """Of a film nothing else is known."""
        return Columns()

    def moments(
        self, index: int, start: int, stop: int, *, views: Sequence[str], size: tuple[int, int] | None
    ) -> Views:
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
            success=meta.success,
            meta=meta.text,
        )


def _name_faults(recordings: Sequence[Recording], where: Path) -> list[Fault]:
    counts = Counter(recording.name for recording in recordings)
    return [
        Fault(file=where, what=f"{count} recordings have the name {name}", episodes=(name,))
        for name, count in counts.items()
        if count > 1
    ]


def _renamed(recording: Recording, names: Names) -> Recording:
    """The recording with the views that were asked for, under their names here."""
    videos = {ours: recording.videos[view] for ours, view in names.of_views(recording.videos, recording.name).items()}
    return Recording(**{**vars(recording), "videos": videos})


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
    return EpisodeMeta(
        name=recording.name,
        length=length,
        instruction=recording.instruction,
        success=recording.success,
        steps=steps_of(recording, length),
        number=recording.number,
        text=recording.text or {},
    )
