"""Times of frames: the clock that stamped the rows, and where the frames of an episode lie in a video.

Clocks of robots and cameras do not keep the frame rate of `info.json`. Rows and frames of equal number are paired in
order, others by nearest time. Deviations are reported.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from embodied_rm.data.issues import DataIssue
from embodied_rm.data.lerobot.episode_index import VideoSegment
from embodied_rm.data.video.decoder import FrameTimes
from embodied_rm.types import IntArray

TOLERANCE_FRAMES = 0.5
"""Largest deviation of a time that needs no report, in intervals between frames."""
START_TOLERANCE_FRAMES = 0.1
"""The same for the stated start of an episode in a video whose frames are found by it alone."""


class Drift(NamedTuple):
    """A deviation of recorded times in one episode."""

    quantity: str  # what deviates, such as "timestamp"
    reference: str  # from what
    file: Path
    episode: str  # name
    duration_s: float


def find_clock_error(times: FrameTimes, fps: float) -> str | None:
    """Return the issue of the times of rows [T] (s) that no clock counts, or None."""
    missing = np.flatnonzero(~np.isfinite(times))
    if len(missing):
        return f"timestamp is {times[missing[0]]} in frame {missing[0]}"
    falls = np.flatnonzero(np.diff(times) < -TOLERANCE_FRAMES / fps)
    if len(falls):
        before, after = times[falls[0] : falls[0] + 2]
        return f"timestamp falls from {before:.3f} to {after:.3f} s in frame {falls[0] + 1}"
    return None


def is_regular(times: FrameTimes, fps: float) -> bool:
    """Whether the times of rows [T] (s) are those of their indices."""
    return bool(np.abs(times - np.arange(len(times)) / fps).max() <= TOLERANCE_FRAMES / fps)


def drift_s(times: FrameTimes, fps: float) -> float:
    """Return by how much times [T] (s) deviate from a frame rate, counted from the first one."""
    return float(np.abs(times - times[0] - np.arange(len(times)) / fps).max())


def find_frames(
    times: FrameTimes,
    segments: Sequence[VideoSegment],
    row_times: Sequence[FrameTimes],
    fps: float,
    *,
    in_order: bool,
) -> list[IntArray | None]:
    """Return the frames of the episodes in a video, int64 [T], increasing; None where they cannot be found.

    Args:
        times: Times of the frames of the video, increasing (s).
        segments: Stated segments, in the order of their starts.
        row_times: Times of the rows of each episode, counted from the first one (s).
        fps: Frame rate of the dataset.
        in_order: Whether the video `holds_exactly` these episodes.
    """
    if in_order:
        lengths = [len(clock) for clock in row_times]
        return [np.arange(end - length, end) for end, length in zip(np.cumsum(lengths), lengths, strict=True)]
    starts = stated_starts(times, segments)
    ends = [np.inf if segment.end is None else segment.end for segment in segments]
    return [
        find_frames_by_time(times, (start, end, limit), clock, fps)
        for start, end, limit, clock in zip(starts, ends, [*starts[1:], np.inf], row_times, strict=True)
    ]


def stated_starts(times: FrameTimes, segments: Sequence[VideoSegment]) -> list[float]:
    """Return the stated starts of segments (s); the time of the first frame where there is none."""
    return [float(times[0]) if segment.start is None else segment.start for segment in segments]


def holds_exactly(times: FrameTimes, segments: Sequence[VideoSegment], lengths: Sequence[int]) -> bool:
    """Whether a video holds the frames of the episodes and no others, one episode after the other.

    Each stated start must be nearer to the first frame of its episode than to that of another one.
    """
    if sum(lengths) != len(times):
        return False
    first_times = times[np.cumsum([0, *lengths[:-1]])]
    middles = (first_times[1:] + first_times[:-1]) / 2
    starts = np.array(stated_starts(times, segments))
    return bool((starts[1:] > middles).all() and (starts[:-1] < middles).all())


def find_frames_by_time(
    times: FrameTimes, span: tuple[float, float, float], row_times: FrameTimes, fps: float
) -> IntArray | None:
    """Return the frames of an episode in a video that holds others, too.

    Those in the stated span if they are as many as the rows, else those at the times of the rows, else those of as many
    intervals as there are rows. None: their numbers differ, and a row has no frame of its own within half an interval.

    Args:
        times: Times of the frames of the video, increasing (s).
        span: Stated start and end of the episode, and the start of the next one (s).
        row_times: Times of the rows, counted from the first one (s).
        fps: Frame rate of the dataset.
    """
    start, end, limit = span
    tolerance = TOLERANCE_FRAMES / fps
    if (stated := frames_between(times + tolerance, start, end, len(row_times))) is not None:
        return stated
    frames = nearest(times, start + row_times)
    is_near = np.abs(times[frames] - start - row_times).max() <= tolerance and (np.diff(frames) > 0).all()
    if is_near and times[frames[-1]] < limit - tolerance:
        return frames
    return frames_between(times + tolerance, start, start + len(row_times) / fps, len(row_times))


def frames_between(times: FrameTimes, start: float, end: float, count: int) -> IntArray | None:
    """Return the frames from a time to another one (s) if they are as many."""
    first, last = np.searchsorted(times, [start, end])
    return np.arange(first, last) if last - first == count else None


def nearest(times: FrameTimes, targets: FrameTimes) -> IntArray:
    """Return the index of the nearest of increasing times for each target."""
    return np.searchsorted((times[1:] + times[:-1]) / 2, targets)


def locate_segment(segment: VideoSegment, times: FrameTimes, frames: IntArray, fps: float) -> VideoSegment:
    """Return a segment with the times of its frames in the video, where the frame rate does not lead to them."""
    own = times[frames]
    expected = own[0] + np.arange(len(frames)) / fps
    is_found = (
        np.array_equal(nearest(times, expected), frames) and np.abs(own - expected).max() < TOLERANCE_FRAMES / fps
    )
    return segment._replace(start=float(own[0]), times=None if is_found else own)


def drift_issues(drifts: Iterable[Drift], num_episodes: int, max_drift_s: float | None) -> list[DataIssue]:
    """Report deviations once per quantity; an episode with one above the maximum (s) is excluded."""
    issues, accepted = [], []
    for drift in drifts:
        if max_drift_s is not None and drift.duration_s > max_drift_s:
            amount = f"{drift.duration_s:.3g} s off {drift.reference}"
            message = f"{drift.quantity} is {amount} in {drift.episode}, features.max_drift_s is {max_drift_s:g}"
            issues.append(DataIssue(file=drift.file, message=message, episodes=(drift.episode,)))
        else:
            accepted.append(drift)
    for quantity, group in groupby(sorted(accepted, key=lambda drift: drift.quantity), lambda drift: drift.quantity):
        items = list(group)
        most = max(items, key=lambda drift: drift.duration_s)
        extent = f"in {len({drift.episode for drift in items})} of {num_episodes} episodes, most in {most.episode}"
        message = f"{quantity} is up to {most.duration_s:.3g} s off {most.reference}, {extent}"
        message += "; features.max_drift_s leaves out such episodes"
        issues.append(DataIssue(file=most.file, message=message, episodes=()))
    return issues
