"""Recordings of several sizes and rates, and with pauses: commands list what there is and what they leave out."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from painted_frames import paint_frames, read_numbers

from embodied_rm.cli.main import main
from embodied_rm.data.convert_dataset import convert_dataset
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.video.files import write_video
from embodied_rm.errors import DataError
from embodied_rm.run_folder import NullReporter

LARGE, SMALL = (48, 64), (24, 32)
GO = "instruction=go"


def write_recording(folder: Path, size: tuple[int, int] = LARGE, fps: float = 10, length: int = 8) -> None:
    folder.mkdir(parents=True)
    write_video(folder / "top.mp4", paint_frames(range(length), *size), fps)


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """The first one has another size than the others, and the last one another rate."""
    for name, size, fps in (("a", SMALL, 10), ("b", LARGE, 10), ("c", LARGE, 10), ("d", LARGE, 5)):
        write_recording(tmp_path / "in" / name, size, fps)
    return tmp_path / "in"


def test_inspect_lists_all_sizes_and_rates(mixed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", f"data={mixed}", GO, f"out={tmp_path / 'run'}"]) == 0
    counts = json.loads((tmp_path / "run" / "metrics.json").read_text())["inspect"]
    assert counts["image_size"] == "48x64 (3 episodes), 24x32 (1 episode)"
    assert counts["fps"] == "10 (3 episodes), 5 (1 episode)"
    output = capsys.readouterr().out
    assert counts["image_size"] in output and counts["fps"] in output


def test_convert_keeps_the_most_common_format_and_names_the_others(
    mixed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["convert", f"data={mixed}", GO, f"out={out}"]) == 0
    size = "its images have 24x32 pixels (height x width), those of most episodes 48x64: image_size=[48,64] resizes all"
    rate = "has 5 frames per second, most episodes have 10"
    issues = json.loads((out / "issues.json").read_text())["issues"]
    assert [(*issue["episodes"], issue["message"]) for issue in issues] == [("a", size), ("d", rate)]
    output = " ".join(capsys.readouterr().out.split())
    assert f"left out: a: a: {size}" in output and f"left out: d: d: {rate}" in output
    metrics = json.loads((out / "metrics.json").read_text())["convert"]
    assert metrics["skipped_episodes"] == ["a", "d"] and metrics["episodes"] == 2
    assert [meta.name for meta in LeRobotDataset(out / "dataset").meta] == ["b", "c"]
    assert main(["convert", f"data={mixed}", GO, f"out={tmp_path / 'small'}", "image_size=[24,32]"]) == 0
    assert [meta.name for meta in LeRobotDataset(tmp_path / "small" / "dataset").meta] == ["a", "b", "c"]


def test_convert_names_every_episode_that_it_leaves_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for index in range(22):
        write_recording(tmp_path / "in" / f"trial_{index:02d}", SMALL if index < 10 else LARGE, length=2)
    assert main(["convert", f"data={tmp_path / 'in'}", GO, f"out={tmp_path / 'run'}"]) == 0
    output = capsys.readouterr().out
    assert [f"left out: trial_{index:02d}" in output for index in range(22)] == [True] * 10 + [False] * 12


def test_a_second_view_of_another_size_is_named(tmp_path: Path) -> None:
    for name, size in (("a", LARGE), ("b", SMALL)):
        write_recording(tmp_path / name)
        write_video(tmp_path / name / "wrist.mp4", paint_frames(range(8), *size), 10)
    (issue,) = convert_dataset(open_dataset(tmp_path, "go"), tmp_path / "out", NullReporter())
    assert issue.episodes == ("b",) and "views is" in issue.message and "(24, 32)" in issue.message


def test_a_view_that_a_recording_lacks_is_left_out_and_reported(tmp_path: Path) -> None:
    for name in "abc":
        write_recording(tmp_path / name)
    for name in "ac":
        write_video(tmp_path / name / "wrist.mp4", paint_frames(range(8), *LARGE), 10)
    source = open_dataset(tmp_path, "go")
    assert source.views == ("top",) and len(source) == 3
    (issue,) = source.issues
    assert (issue.file, issue.episodes) == (tmp_path, ())
    assert issue.message == "the view wrist is left out: it is missing in b"
    (tmp_path / "a/wrist.mp4").unlink()
    (tmp_path / "c/wrist.mp4").rename(tmp_path / "c/side.mp4")
    (issue,) = open_dataset(tmp_path, "go").issues
    assert issue.message == "the view side is left out: it is missing in a, b"


def test_clocks_of_cameras_are_one_rate(tmp_path: Path) -> None:
    """29.97 and 30 Hz, and 25 Hz."""
    for name, fps in (("a", 30), ("b", 30000 / 1001), ("c", 25), ("d", 30)):
        write_recording(tmp_path / "in" / name, fps=fps)
    (issue,) = convert_dataset(open_dataset(tmp_path / "in", "go"), tmp_path / "out", NullReporter())
    assert issue.episodes == ("c",) and issue.message == "has 25 frames per second, most episodes have 30"
    written = LeRobotDataset(tmp_path / "out")
    assert written.fps == 30 and [meta.name for meta in written.meta] == ["a", "b", "d"]
    with pytest.raises(DataError, match="already exists"):
        convert_dataset(open_dataset(tmp_path / "in", "go"), tmp_path / "out", NullReporter())


# Frames that are not evenly spaced


def write_times(path: Path, times_ms: list[int]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w", format="gif" if path.suffix == ".gif" else "mp4") as container:
        stream = container.add_stream("gif" if path.suffix == ".gif" else "libx264", rate=100)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "rgb8" if path.suffix == ".gif" else "yuv420p"
        stream.codec_context.time_base = Fraction(1, 100 if path.suffix == ".gif" else 1000)
        for image, time in zip(paint_frames(range(len(times_ms))), times_ms, strict=True):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24").reformat(format=stream.pix_fmt)
            frame.time_base = stream.codec_context.time_base
            frame.pts = int(Fraction(time, 1000) / frame.time_base)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def times_with_gap(gap_ms: int, length: int = 40, frame: int = 30) -> list[int]:
    return [100 * i + (gap_ms - 100) * (i >= frame) for i in range(length)]


def spacing(longest: str, frame: int, mean: str) -> str:
    apart = f"{longest} s apart at frame {frame}, {mean} s on average"
    return f"its frames are spaced unevenly ({apart}), and are read as evenly spaced"


UNEVEN = {
    "a pause of 3 s": ("a.mp4", times_with_gap(3000), spacing("3", 30, "0.174")),
    "half the rate from a frame on": ("a.mp4", [*range(0, 2000, 100), *range(2000, 6001, 200)], None),
    "two pauses": ("a.mp4", [t + 900 * (i >= 10) + 1900 * (i >= 20) for i, t in enumerate(range(0, 4000, 100))], None),
    "a GIF that shows its last image longer": ("a.gif", times_with_gap(2000, 21, 20), spacing("2", 20, "0.195")),
}


@pytest.mark.parametrize("kind", UNEVEN)
def test_uneven_times_are_noted_and_exclude_nothing(kind: str, tmp_path: Path) -> None:
    name, times, message = UNEVEN[kind]
    source = open_dataset(write_times(tmp_path / name, times), "go")
    (issue,) = source.issues
    assert issue.is_note and issue.episodes == ("a",) and issue.file.name == name and len(source) == 1
    assert issue.message == message or (message is None and "spaced unevenly" in issue.message)
    assert source.meta[0].length == len(times)


@pytest.mark.parametrize(
    "times",
    [
        [100 * i for i in range(40)],
        [100 * i + int(j) for i, j in enumerate(np.random.default_rng(0).integers(-30, 30, 40))][1:],
        [33 * i + (i > 20) * 33 for i in range(40)],
        [60_000 * i + 700 * (i % 2) for i in range(10)],
        [0, 5000],
        [0],
    ],
    ids=["even", "jitter of a phone", "one lost frame", "a frame per minute", "two frames", "one frame"],
)
def test_times_that_are_even_enough_are_not_noted(times: list[int], tmp_path: Path) -> None:
    assert open_dataset(write_times(tmp_path / "a.mp4", times), "go").issues == ()


def test_convert_names_the_pause_that_it_leaves_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("first", "second"):
        write_times(tmp_path / "in" / name / "a.mp4", times_with_gap(3000 if name == "first" else 100))
        write_times(tmp_path / "in" / name / "b.mp4", times_with_gap(3000 if name == "first" else 100))
    out = tmp_path / "run"
    assert main(["convert", f"data={tmp_path / 'in' / 'first'}", GO, f"out={out}"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    for view in "ab":
        assert f"note: first: {tmp_path}/in/first/{view}.mp4: {spacing('3', 30, '0.174')}" in output
    written = LeRobotDataset(out / "dataset")
    assert read_numbers(written.episode(0).views["a"]) == list(range(40))
    issues = json.loads((out / "issues.json").read_text())["issues"]
    assert [issue["is_note"] for issue in issues] == [True, True]
