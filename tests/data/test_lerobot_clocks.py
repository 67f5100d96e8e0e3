"""Clocks of robots and cameras do not keep the frame rate of a LeRobot dataset: rows keep their frames."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lerobot_v21 import DATA_PATH, VIDEO_PATH, write_v21_dataset
from painted_frames import make_episode, paint_frames, read_numbers

from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import DataError, UserError

COUNT, LENGTH, FPS = 3, 20, 10
DATA, EPISODES = "data/chunk-000/file-000.parquet", "meta/episodes/chunk-000/file-000.parquet"
VIDEO = "videos/observation.images.wrist/chunk-000/file-000.mp4"
FROM, TO = (f"videos/observation.images.wrist/{key}_timestamp" for key in ("from", "to"))
NUMBERS = [[*range(100 * index, 100 * index + LENGTH)] for index in range(COUNT)]
ALL_NUMBERS = [number for numbers in NUMBERS for number in numbers]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    with DatasetWriter(tmp_path / "data") as writer:
        for index in range(COUNT):
            writer.add(make_episode(index, LENGTH))
    return tmp_path / "data"


def edit_table(path: Path, **columns: Any) -> None:
    table = pq.read_table(path)
    for name, values in columns.items():
        table = table.drop_columns(name).append_column(name, pa.array(values))
    pq.write_table(table, path)


def set_times(dataset: Path, times: np.ndarray) -> None:
    """Set the times of the rows of every episode."""
    edit_table(dataset / DATA, timestamp=np.tile(times, COUNT))


def write_timed_video(path: Path, numbers: list[int], times: np.ndarray) -> None:
    """Write painted frames at times in s, in milliseconds as a camera does."""
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=FPS, options={"bf": "0", "qp": "18"})
        stream.height, stream.width, stream.pix_fmt = 48, 64, "yuv420p"
        stream.codec_context.time_base = stream.time_base = Fraction(1, 1000)
        for pixels, time in zip(paint_frames(np.array(numbers)), times, strict=True):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(format="yuv420p")
            frame.pts, frame.time_base = round(time * 1000), Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def messages(source: EpisodeSource) -> str:
    return "; ".join(issue.message for issue in source.issues)


def numbers(source: EpisodeSource, view: str = "wrist") -> list[list[int]]:
    """The frames of all episodes, and the same frames read one by one."""
    read = [read_numbers(episode.views[view]) for episode in source]
    for index, expected in enumerate(read):
        frames = [source.read_frames(index, i, i + 1, views=[view], size=None).frames[:, 0] for i in range(LENGTH)]
        assert read_numbers(np.concatenate(frames)) == expected
    return read


INDEX_TIMES = np.arange(LENGTH) / FPS
CLOCKS = {
    "8 % fast": (1.08 * INDEX_TIMES, 0.152),
    "8 % slow": (INDEX_TIMES / 1.08, 0.141),
    "paused": (INDEX_TIMES + 5 * (np.arange(LENGTH) >= 8), 5),
    "wall clock, 8 % fast": (1.7e9 + 1.08 * INDEX_TIMES, 0.152),
    "wall clock as float32": ((1.7e9 + INDEX_TIMES).astype(np.float32), 1.9),
}


@pytest.mark.parametrize("clock", CLOCKS)
def test_rows_of_any_clock_keep_their_frames(dataset: Path, clock: str) -> None:
    times, drift_s = CLOCKS[clock]
    set_times(dataset, times)
    source = open_dataset(dataset)
    assert numbers(source) == NUMBERS
    (issue,) = source.issues
    assert f"timestamp is up to {drift_s:g} s off 10 frames per second, in 3 of 3 episodes" in issue.message
    assert issue.episodes == () and issue.file == dataset / DATA


@pytest.mark.parametrize(
    "times", [1.7e9 + INDEX_TIMES, INDEX_TIMES - 3, INDEX_TIMES + 0.04 * (-1) ** np.arange(LENGTH)]
)
def test_a_clock_that_starts_elsewhere_or_jitters_needs_no_report(dataset: Path, times: np.ndarray) -> None:
    set_times(dataset, times)
    source = open_dataset(dataset)
    assert source.issues == () and numbers(source) == NUMBERS


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("duration", [False, True])
def test_times_may_have_a_type_of_their_own(dataset: Path, unit: str, duration: bool) -> None:
    """As pandas writes dates and durations."""
    per_s = {"ms": 1e3, "us": 1e6, "ns": 1e9}[unit]
    ticks = np.rint((1.7e9 + np.tile(INDEX_TIMES, COUNT)) * per_s).astype(np.int64)
    column_type = pa.duration(unit) if duration else pa.timestamp(unit, "UTC")
    edit_table(dataset / DATA, timestamp=pa.array(ticks, column_type))
    source = open_dataset(dataset)
    assert source.issues == () and numbers(source) == NUMBERS


def test_times_in_nanoseconds_are_no_seconds(dataset: Path) -> None:
    edit_table(dataset / DATA, timestamp=np.int64(1.7e18) + (np.tile(INDEX_TIMES, COUNT) * 1e9).astype(np.int64))
    source = open_dataset(dataset)
    assert numbers(source) == NUMBERS and "timestamp is up to 1.9e+09 s off 10 frames per second" in messages(source)


def test_the_user_says_how_much_drift_is_too_much(dataset: Path) -> None:
    edit_table(dataset / DATA, timestamp=np.concatenate([INDEX_TIMES, 1.08 * INDEX_TIMES, 1.04 * INDEX_TIMES]))
    source = open_dataset(dataset, feature_map=FeatureMap(max_drift_s=0.1))
    assert [meta.name for meta in source.meta] == ["trial_0", "trial_2"]
    excluding, report = source.issues
    assert excluding.episodes == ("trial_1",)
    assert "timestamp is 0.152 s off 10 frames per second in trial_1, features.max_drift_s is 0.1" in excluding.message
    assert "up to 0.076 s off 10 frames per second, in 1 of 3 episodes, most in trial_2" in report.message
    with pytest.raises(UserError, match="max_drift_s must be >= 0, got -1"):
        FeatureMap(max_drift_s=-1)
    set_times(dataset, 1.08 * INDEX_TIMES)
    with pytest.raises(DataError, match=r"features.max_drift_s is 0.1"):
        open_dataset(dataset, feature_map=FeatureMap(max_drift_s=0.1))


def test_times_that_go_back_are_no_clock(dataset: Path) -> None:
    set_times(dataset, np.where(np.arange(LENGTH) == 12, 0.2, INDEX_TIMES))
    with pytest.raises(DataError, match=r"timestamp falls from 1.100 to 0.200 s in frame 12 of episode 0"):
        open_dataset(dataset)


@pytest.mark.parametrize("rate", [1.08, 1 / 1.08, 2.0])
def test_a_video_of_another_rate_keeps_its_frames(dataset: Path, rate: float) -> None:
    """Three episodes in one video whose clock is that of the camera, and starts that follow it."""
    frames, times = ALL_NUMBERS, np.arange(COUNT * LENGTH) / FPS * rate
    write_timed_video(dataset / VIDEO, frames, times)
    edit_table(dataset / EPISODES, **{FROM: times[::LENGTH], TO: times[::LENGTH] + LENGTH / FPS * rate})
    source = open_dataset(dataset)
    assert numbers(source) == NUMBERS and len(source.meta) == COUNT
    drift_s = abs(rate - 1) * (LENGTH - 1) / FPS
    assert f"the video of observation.images.wrist is up to {drift_s:.3g} s off 10 frames per second" in messages(
        source
    )


def test_frames_of_uneven_times_are_those_of_their_rows(dataset: Path) -> None:
    """One frame after a gap of a second, in a video beside one that is even."""
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.uniform(0.05, 0.18, COUNT * LENGTH)) + 1.0 * (np.arange(COUNT * LENGTH) > 30)
    times -= times[0]
    write_timed_video(dataset / VIDEO, ALL_NUMBERS, times)
    edit_table(dataset / EPISODES, **{FROM: times[::LENGTH], TO: [*times[LENGTH::LENGTH], times[-1] + 0.1]})
    source = open_dataset(dataset)
    assert numbers(source) == numbers(source, "front") == NUMBERS
    assert read_numbers(source.episode(1, stride=7).views["wrist"]) == [100, 107, 114, 119]


def test_rows_of_a_slow_clock_are_paired_by_time_with_a_video_of_more_frames(tmp_path: Path) -> None:
    """The camera keeps 10 Hz, the rows come every 0.12 s: row k shows frame round(1.2 k)."""
    path = write_v21_dataset(tmp_path / "data", [make_episode(0, LENGTH)])
    edit_table(path / DATA_PATH.format(0, 0), timestamp=0.12 * np.arange(LENGTH))
    for view in ("front", "wrist"):
        write_timed_video(path / VIDEO_PATH.format(0, 0, view), list(range(24)), np.arange(24) / FPS)
    source = open_dataset(path)
    assert numbers(source) == [[round(1.2 * row) for row in range(LENGTH)]]
    assert "timestamp is up to 0.38 s off 10 frames per second" in messages(source)


def test_a_camera_of_a_higher_rate_is_read_at_the_times_of_the_rows(tmp_path: Path) -> None:
    path = write_v21_dataset(tmp_path / "data", [make_episode(0, LENGTH)])
    for view in ("front", "wrist"):
        write_timed_video(path / VIDEO_PATH.format(0, 0, view), list(range(60)), np.arange(60) / 30)
    source = open_dataset(path)
    assert numbers(source) == [[3 * row for row in range(LENGTH)]] and source.issues == ()


@pytest.mark.parametrize("offset", [0.0, 0.067])
def test_the_first_frame_of_a_file_of_one_episode_may_be_late(tmp_path: Path, offset: float) -> None:
    """Encoders with reordered frames start after 0."""
    path = write_v21_dataset(tmp_path / "data", [make_episode(0, LENGTH)])
    write_timed_video(path / VIDEO_PATH.format(0, 0, "wrist"), NUMBERS[0], INDEX_TIMES + offset)
    source = open_dataset(path)
    assert numbers(source) == NUMBERS[:1] and source.issues == ()


@pytest.mark.parametrize("drift_s", [0.04, 0.06, -0.06, 0.1, 0.34])
def test_a_start_that_drifts_never_shows_the_neighbour(dataset: Path, drift_s: float) -> None:
    """The starts of LeRobot's joined videos drift apart from the frames, by as much more as there are episodes."""
    starts = np.arange(COUNT) * (LENGTH / FPS + drift_s / 2)
    edit_table(dataset / EPISODES, **{FROM: starts, TO: starts + LENGTH / FPS})
    source = open_dataset(dataset)
    assert numbers(source) == NUMBERS
    expected = f"from_timestamp of observation.images.wrist is up to {abs(drift_s):.3g} s off the first frame"
    assert (expected in messages(source)) == (abs(drift_s) > 0.05)
    strict = FeatureMap(max_drift_s=0.05)
    assert [meta.name for meta in open_dataset(dataset, feature_map=strict).meta] == [
        f"trial_{index}" for index in range(COUNT) if abs(drift_s * index / 2) <= 0.05
    ]


@pytest.mark.parametrize("drift_s", [0.03, -0.03, 0.06])
def test_the_same_is_noticed_where_a_video_holds_other_frames_too(dataset: Path, drift_s: float) -> None:
    """Frames of no episode at the end: the starts alone say where the episodes are."""
    write_timed_video(dataset / VIDEO, [*ALL_NUMBERS, 400, 401, 402], np.arange(COUNT * LENGTH + 3) / FPS)
    starts = np.arange(COUNT) * LENGTH / FPS + [0, drift_s, drift_s]
    edit_table(dataset / EPISODES, **{FROM: starts, TO: starts + LENGTH / FPS})
    source = open_dataset(dataset)
    assert "from_timestamp of observation.images.wrist is up to" in messages(source)
    if abs(drift_s) < 0.05:
        assert numbers(source) == NUMBERS


def test_a_start_in_the_middle_of_another_episode_is_an_issue(dataset: Path) -> None:
    edit_table(dataset / EPISODES, **{FROM: [0.0, 0.9, 4.0]})
    source = open_dataset(dataset)
    assert "episodes 0 and 1 overlap" in messages(source) and [meta.name for meta in source.meta] == [
        "trial_0",
        "trial_2",
    ]


def test_the_rate_that_is_stated_stays_that_of_the_dataset(dataset: Path) -> None:
    set_times(dataset, 1.08 * INDEX_TIMES)
    source = open_dataset(dataset)
    assert source.fps == FPS == json.loads((dataset / "meta/info.json").read_text())["fps"]
