"""Read recordings stored as plain videos."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from embodied_rm.data.base_dataset import BaseDataset
from embodied_rm.data.common_views import common_views, find_left_out_views
from embodied_rm.data.feature_map import DEFAULT_FEATURE_MAP, FeatureMap
from embodied_rm.data.issues import DataIssue, affected_episodes, check_not_empty
from embodied_rm.data.recordings.recording import Recording, read_subtasks
from embodied_rm.data.source import EpisodeMeta, ImageSize, check_subtasks, equal_rates
from embodied_rm.data.video.decoder import VideoDecoder, VideoInfo
from embodied_rm.errors import DataError
from embodied_rm.types import Frames, IntArray

MAX_EXTRA_TIME_S = 0.1
"""Time by which a camera may stop before another one: its siblings' last frames, or frame, are then left out."""


class RecordingDataset(BaseDataset):
    """Recordings stored as plain videos, an `EpisodeSource`; `path` is for messages.

    Opening probes every video. Recordings with issues are excluded and listed in `issues`, after the `known_issues`:
    unreadable files, views of other lengths or rates, or subtasks that do not fit. Views that some recordings lack are
    left out and listed, too.
    """

    def __init__(
        self,
        recordings: Sequence[Recording],
        feature_map: FeatureMap = DEFAULT_FEATURE_MAP,
        known_issues: Sequence[DataIssue] = (),
        path: Path = Path(),
    ) -> None:
        self._decoder = VideoDecoder()
        self._recordings: list[Recording] = []
        self._video_infos: list[dict[str, VideoInfo]] = []
        meta: list[EpisodeMeta] = []
        all_issues = [*known_issues, *_duplicate_name_issues(recordings, path)]
        duplicates = set(affected_episodes(all_issues))
        for recording in recordings:
            if recording.name in duplicates:
                continue
            try:
                renamed = _rename_views(recording, feature_map)
                stored_infos = _probe_views(renamed, self._decoder)
                lengths = [max(map(len, stored_infos.values())), min(map(len, stored_infos.values()))]
                video_infos = {
                    view: replace(info, timestamps=info.timestamps[: lengths[1]]) for view, info in stored_infos.items()
                }
                meta.append(_build_meta(renamed, *lengths))
                for view, info in stored_infos.items():
                    notes = info.describe_gap(), _describe_extra_frames(len(info), lengths[1])
                    all_issues += [
                        DataIssue(file=renamed.videos[view], message=note, episodes=(recording.name,), is_note=True)
                        for note in notes
                        if note is not None
                    ]
            except DataError as error:
                all_issues.append(DataIssue.from_error(error, (recording.name,)))
                continue
            self._recordings.append(renamed)
            self._video_infos.append(video_infos)
        check_not_empty(path, self._recordings, all_issues)
        named_views = [(recording.name, recording.videos) for recording in self._recordings]
        self.views = common_views(named_views)
        self.issues = (*all_issues, *find_left_out_views(path, named_views))
        self.fps = self._video_infos[0][self.views[0]].fps
        self.meta = tuple(meta)

    def files(self, index: int) -> tuple[Path, ...]:
        return tuple(self._recordings[index].videos[view] for view in self.views)

    def _stored_image_size(self, index: int) -> ImageSize:
        info = self._video_infos[index][self.views[0]]
        return info.height, info.width

    def frame_rate(self, index: int) -> float:
        return self._video_infos[index][self.views[0]].fps

    def _read_view(self, index: int, view: str, frame_indices: IntArray, size: ImageSize | None) -> Frames:
        path, info = self._recordings[index].videos[view], self._video_infos[index][view]
        return self._decoder.read(path, info.timestamps[frame_indices], info.fps, size)


def _duplicate_name_issues(recordings: Sequence[Recording], path: Path) -> list[DataIssue]:
    counts = Counter(recording.name for recording in recordings)
    duplicates = {name: f"{count} recordings have the name {name}" for name, count in counts.items() if count > 1}
    return [DataIssue(file=path, message=message, episodes=(name,)) for name, message in duplicates.items()]


def _rename_views(recording: Recording, feature_map: FeatureMap) -> Recording:
    """Return the recording with the selected views under their new names."""
    views = feature_map.resolve_views(recording.videos, recording.name)
    return replace(recording, videos={name: recording.videos[view] for name, view in views.items()})


def _probe_views(recording: Recording, decoder: VideoDecoder) -> dict[str, VideoInfo]:
    """Probe the file of each view; all must have about equal lengths and frame rates."""
    infos = {view: decoder.probe(path) for view, path in recording.videos.items()}
    first, *others = recording.videos
    for other in others:
        lengths, rates = (len(infos[first]), len(infos[other])), (infos[first].fps, infos[other].fps)
        max_extra_frames = max(1, round(MAX_EXTRA_TIME_S * infos[first].fps))
        for quantity, (expected, actual), is_equal in (
            ("frames", lengths, abs(lengths[0] - lengths[1]) <= max_extra_frames),
            ("frames per second", rates, equal_rates(*rates)),
        ):
            if not is_equal:
                sibling = f"its sibling view {recording.videos[first]} has {expected:g}"
                raise DataError(f"{recording.videos[other]}: has {actual:g} {quantity}, but {sibling}")
    return infos


def _describe_extra_frames(length: int, shortest: int) -> str | None:
    """Return a note for a view that is longer than another one."""
    if length == shortest:
        return None
    return f"has {length} frames, another view has {shortest}: the last {length - shortest} left out"


def _build_meta(recording: Recording, stored_length: int, length: int) -> EpisodeMeta:
    """Return the metadata of a recording that is cut to `length`; `stored_length` is that of its longest view."""
    subtasks = recording.subtasks
    if isinstance(subtasks, Path):
        subtasks = read_subtasks(subtasks, stored_length)
    else:
        check_subtasks(subtasks, stored_length, recording.name)
    subtasks = tuple(replace(subtask, end=min(subtask.end, length)) for subtask in subtasks if subtask.start < length)
    return EpisodeMeta(
        name=recording.name,
        length=length,
        instruction=recording.instruction,
        success=recording.success,
        subtasks=subtasks,
        episode_index=recording.episode_index,
        metadata=recording.metadata or {},
    )
