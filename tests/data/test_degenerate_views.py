"""Views that show nothing are named, with their episode, and exclude nothing."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from painted_frames import make_episode, paint_frames

from embodied_rm.cli.main import main
from embodied_rm.data.block_reader import validate_episode
from embodied_rm.data.degenerate_views import compare_views, sample_indices
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.load_dataset import read_valid_episodes
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.run_folder import NullReporter
from embodied_rm.training.streaming import StreamingEpisodes
from embodied_rm.types import Episode, Frames

WRIST = "observation.images.wrist"
LENGTH, HEIGHT, WIDTH = 20, 48, 64


def one_color(*rgb: int, noise: int = 0) -> Frames:
    frames = np.full((LENGTH, HEIGHT, WIDTH, 3), rgb, np.int64)
    frames += np.random.default_rng(0).integers(-noise, noise + 1, frames.shape)
    return frames.clip(0, 255).astype(np.uint8)


def still(number: int = 7) -> Frames:
    return np.repeat(paint_frames([number]), LENGTH, axis=0)


MOVING = make_episode(0).views["front"]
NOISE = np.random.default_rng(0).integers(0, 3, MOVING.shape, np.uint8)
LAMP = np.pad(np.full((4, 4, 3), 30, np.uint8), ((40, 4), (30, 30), (0, 0)))
LOST = "is black in the second half of its frames"
BLACK = "shows one color in every frame, RGB 0 0 0"
DEGENERATE = {
    "black": (one_color(0, 0, 0), BLACK),
    "a covered lens, with noise": (one_color(2, 2, 2, noise=1), BLACK.replace("0", "2")),
    "green, as decoders show lost images": (one_color(0, 135, 0), "shows one color in every frame, RGB 0 135 0"),
    "a frozen camera": (still(), "never changes"),
    "a frozen camera, with noise": (
        still() + np.random.default_rng(0).integers(0, 3, MOVING.shape, np.uint8),
        "never changes",
    ),
    "a camera that was lost": (np.concatenate([MOVING[:1], one_color(0, 0, 0)[1:]]), LOST),
    "a camera that was lost in the middle, with noise": (
        np.concatenate([MOVING[: LENGTH // 2], one_color(1, 1, 1, noise=1)[LENGTH // 2 :]]),
        LOST,
    ),
    "a camera that froze in another place": (
        np.concatenate([MOVING[:1], still()[1:, ::-1]]),
        "never changes after its start",
    ),
    "the other camera": (MOVING, "shows the images of the view front"),
}


@pytest.mark.parametrize("kind", DEGENERATE)
def test_a_view_that_shows_nothing_is_described(kind: str) -> None:
    frames, description = DEGENERATE[kind]
    assert compare_views({"front": MOVING, "wrist": frames}) == {"wrist": description}


@pytest.mark.parametrize(
    "frames",
    [
        make_episode(1).views["front"],
        MOVING[::-1],
        still() + np.pad(np.full((LENGTH - 1, 3, 4, 3), 20, np.uint8), ((1, 0), (40, 5), (30, 30), (0, 0))),
        np.concatenate([MOVING[:-1], one_color(0, 0, 0)[-1:]]),
        np.concatenate([one_color(0, 0, 0)[:-1], MOVING[-1:]]),
        np.stack([np.roll(one_color(0, 0, 0)[0] + LAMP, t, axis=1) for t in range(LENGTH)]),
    ],
    ids=[
        "another view",
        "its reverse",
        "a small object moves",
        "black at its end",
        "black at its start",
        "a light in the dark moves",
    ],
)
def test_a_view_that_shows_little_is_not_degenerate(frames: Frames) -> None:
    assert compare_views({"front": MOVING, "wrist": frames}) == {}


def test_sizes_of_views_may_differ() -> None:
    doubled = MOVING.repeat(2, axis=1).repeat(2, axis=2)
    assert compare_views({"front": doubled, "wrist": MOVING}) == {"wrist": "shows the images of the view front"}
    assert compare_views({"front": MOVING[:, :20, :40], "wrist": MOVING[:, :24, :20]}) == {}


def test_one_frame_cannot_be_frozen() -> None:
    assert compare_views({"front": MOVING[:1]}) == {} and sample_indices(1).tolist() == [0]
    assert sample_indices(3).tolist() == [0, 1, 2] and sample_indices(100).tolist()[::7] == [0, 99]


def write_dataset(path: Path) -> Path:
    """Episode 0 has a black view, episode 1 a frozen one, and episode 2 has one camera twice."""
    episodes = [make_episode(index) for index in range(4)]
    for index, frames in enumerate((one_color(0, 0, 0), still(), episodes[2].views["front"], MOVING)):
        episodes[index] = replace(episodes[index], views={**episodes[index].views, "wrist": frames})
    with DatasetWriter(path) as writer:
        for episode in episodes:
            writer.add(episode)
    return path


EXPECTED = [
    ("trial_0", f"the view wrist {BLACK}"),
    ("trial_1", "the view wrist never changes"),
    ("trial_2", "the view wrist shows the images of the view front"),
]


def test_validation_names_the_episode_the_view_and_the_file(tmp_path: Path) -> None:
    source = open_dataset(write_dataset(tmp_path / "data"))
    issues = [issue for index in range(len(source)) for issue in validate_episode(source, index)]
    assert [(*issue.episodes, issue.message) for issue in issues] == EXPECTED
    assert all(issue.is_note and WRIST in issue.file.parts for issue in issues)


def test_inspect_reports_and_excludes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert main(["inspect", f"data={write_dataset(tmp_path / 'data')}", f"out={out}"]) == 0
    output = capsys.readouterr().out.replace("\n", "")
    for name, message in EXPECTED:
        assert re.search(f"note: {name}: [^:]*/{WRIST}/[^:]*: {message}", output)
    issues = json.loads((out / "issues.json").read_text())["issues"]
    assert [(*issue["episodes"], issue["message"], issue["is_note"]) for issue in issues] == [
        (*expected, True) for expected in EXPECTED
    ]
    counts = json.loads((out / "metrics.json").read_text())["inspect"]
    assert (counts["episodes"], counts["issues"], counts["episodes_with_issues"]) == (4, 3, 0)


class LogReporter(NullReporter):
    """Keeps the lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, message: str) -> None:
        self.lines.append(message)


@pytest.mark.parametrize("frame_cache_gb", [None, 1.0, 1e-6])
def test_training_reports_too(frame_cache_gb: float | None, tmp_path: Path) -> None:
    """Also where the images do not stay in memory."""
    source, reporter = open_dataset(write_dataset(tmp_path / "data")), LogReporter()

    def read(index: int) -> Episode:
        return source.episode(index, size=(32, 32))

    read_episode = read if frame_cache_gb is None else StreamingEpisodes(read, frame_cache_gb).index_episode
    assert len(list(read_valid_episodes(source, range(4), read_episode, reporter, "read"))) == 4
    assert [line.split(": ")[1::2] for line in reporter.lines] == [list(expected) for expected in EXPECTED]
