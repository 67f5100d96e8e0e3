"""Check the videos of a LeRobot dataset, and find the frames of each episode in them."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from embodied_rm.data.dataset_files import is_inside
from embodied_rm.data.issues import DataIssue
from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.lerobot.episode_index import EpisodeIndexRow, VideoSegment
from embodied_rm.data.lerobot.frame_times import (
    START_TOLERANCE_FRAMES,
    TOLERANCE_FRAMES,
    Drift,
    drift_s,
    find_frames,
    holds_exactly,
    locate_segment,
    stated_starts,
)
from embodied_rm.data.video.decoder import FrameTimes, VideoDecoder
from embodied_rm.errors import DataError
from embodied_rm.types import IntArray


class VideoCheck(NamedTuple):
    """What a video file holds."""

    segments: dict[int, VideoSegment]  # episode index -> its frames
    drifts: list[Drift]
    issues: list[DataIssue]


def check_video_file(
    root: Path,
    path: Path,
    segments: Sequence[tuple[EpisodeIndexRow, VideoSegment]],
    row_times: Mapping[int, FrameTimes],
    feature: tuple[str, Mapping[str, Any]],
    fps: float,
    decoder: VideoDecoder,
) -> VideoCheck:
    """Find the frames of all episodes in one video.

    Args:
        root: Folder of the dataset.
        path: The video.
        segments: Episodes in it and their stated segments.
        row_times: Episode index -> times of its rows, counted from the first one (s), if they are not those of their
            indices.
        feature: Name of the feature of the video, and its entry in `info.json`.
        fps: Frame rate of the dataset.
        decoder: Reads the video.
    """
    try:
        times = probe_video(root, path, fmt.stated_size(feature[1]), decoder)
    except DataError as error:
        return VideoCheck({}, [], [DataIssue.from_error(error, [row.meta.name for row, _ in segments], path)])
    ordered = sorted(segments, key=lambda item: item[1].start or 0.0)
    rows, stated = [row for row, _ in ordered], [segment for _, segment in ordered]
    lengths = [row.meta.length for row in rows]
    in_order = holds_exactly(times, stated, lengths)
    clocks = [row_times.get(row.index, np.arange(row.meta.length) / fps) for row in rows]
    found = find_frames(times, stated, clocks, fps, in_order=in_order)
    issues, drifts, located = [], [], {}
    for row, segment, frames in zip(rows, stated, found, strict=True):
        message = find_frame_error(row, segment, frames, times, fps)
        if message is not None:
            issues.append(DataIssue(file=path, message=message, episodes=(row.meta.name,)))
            continue
        assert frames is not None
        located[row.index] = locate_segment(segment, times, frames, fps)
        tolerance = (TOLERANCE_FRAMES if in_order else START_TOLERANCE_FRAMES) / fps
        drifts += find_drifts(path, row.meta.name, feature[0], segment, times[frames], fps, tolerance)
    frames_by_row = [(row, frames) for row, frames in zip(rows, found, strict=True) if frames is not None]
    return VideoCheck(located, drifts, issues + find_overlaps(path, frames_by_row))


def probe_video(root: Path, path: Path, size: tuple[int, int] | None, decoder: VideoDecoder) -> FrameTimes:
    """Return the times of the frames of a video in the dataset (s), whose size is the stated one."""
    if not is_inside(root, path):
        raise DataError(f"{path}: leads out of the dataset's folder")
    video = decoder.probe(path)
    check_size(path, (video.height, video.width), size)
    return video.timestamps


def check_size(path: Path, size: tuple[int, int], stated: tuple[int, int] | None) -> None:
    """Raise `DataError` for images (height, width) of another size than the stated one."""
    if stated not in (None, size):
        raise DataError(f"{path}: its images are {size[0]}x{size[1]}, info.json states {'x'.join(map(str, stated))}")


def find_frame_error(
    row: EpisodeIndexRow, segment: VideoSegment, frames: IntArray | None, times: FrameTimes, fps: float
) -> str | None:
    """Return the issue of the frames of an episode, or None."""
    length = row.meta.length
    if frames is None:
        (start,) = stated_starts(times, [segment])
        first, last = np.searchsorted(times + TOLERANCE_FRAMES / fps, [start, start + length / fps])
        return f"has {last - first} frames of episode {row.index}, which has {length} rows"
    # Without a stated start, the video is of one episode: in others, more frames may be of an episode without a row.
    if segment.start is None and round((times[-1] - times[frames[-1]]) * fps, 2) >= 1:
        return f"has {len(times)} frames, the only episode in it has {length} rows"
    return None


def find_drifts(
    path: Path, episode: str, key: str, segment: VideoSegment, times: FrameTimes, fps: float, start_tolerance_s: float
) -> list[Drift]:
    """Return the deviations of an episode's start, and of its frames at `times` (s)."""
    drifts = []
    start_drift_s = 0.0 if segment.start is None else abs(segment.start - float(times[0]))
    if start_drift_s > start_tolerance_s:
        quantity, reference = f"from_timestamp of {key}", "the first frame of its episode"
        drifts.append(Drift(quantity, reference, path, episode, start_drift_s))
    if (frame_drift_s := drift_s(times, fps)) > TOLERANCE_FRAMES / fps:
        drifts.append(Drift(f"the video of {key}", f"{fps:g} frames per second", path, episode, frame_drift_s))
    return drifts


def find_overlaps(path: Path, frames: Sequence[tuple[EpisodeIndexRow, IntArray]]) -> list[DataIssue]:
    """Find episodes that share frames of a video. The episode that does not start where its predecessors end is
    affected, or both.
    """
    issues = []
    by_index = sorted(frames, key=lambda item: item[0].index)
    expected = np.cumsum([0, *(len(own) for _, own in by_index)]).tolist()
    expected_start = {row.index: start for (row, _), start in zip(by_index, expected, strict=False)}
    for (first_row, first), (second_row, second) in pairwise(sorted(frames, key=lambda item: int(item[1][0]))):
        if second[0] <= first[-1]:
            pair = ((first_row, first), (second_row, second))
            misplaced = [row for row, own in pair if own[0] != expected_start[row.index]]
            names = tuple(row.meta.name for row in misplaced or (first_row, second_row))
            message = f"episodes {first_row.index} and {second_row.index} overlap"
            issues.append(DataIssue(file=path, message=message, episodes=names))
    return issues
