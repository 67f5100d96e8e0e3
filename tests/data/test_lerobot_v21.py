"""LeRobot v2.1: episodes read back equal to v3.0, and an issue excludes only its episode."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lerobot_v21 import DATA_PATH, VIDEO_PATH, write_v21_dataset
from painted_frames import make_episode, paint_frames, read_numbers, replace_by_lfs_pointer, truncate

from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.issues import affected_episodes
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.video.files import write_video
from embodied_rm.errors import DataError

COUNT, LENGTH = 5, 14
EPISODES_PATH = "meta/episodes.jsonl"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    return write_v21_dataset(
        tmp_path_factory.mktemp("v21") / "dataset", [make_episode(i, LENGTH) for i in range(COUNT)]
    )


def test_round_trip(dataset):
    source = open_dataset(dataset)
    assert source.views == ("front", "wrist") and source.fps == 10 and source.issues == ()
    for i, episode in enumerate(source):
        expected = make_episode(i, LENGTH)
        assert episode.name == f"episode_{i:06d}" and episode.instruction == expected.instruction
        assert read_numbers(episode.views["wrist"]) == list(range(100 * i, 100 * i + LENGTH))
        assert np.array_equal(episode.state, expected.state) and np.array_equal(episode.action, expected.action)
        assert episode.success is None and episode.progress is None and episode.subtasks == ()


def test_feature_map(dataset):
    names = FeatureMap(views={"wrist": "hand"}, state=("observation.state", "action", "timestamp"))
    source = open_dataset(dataset, feature_map=names)
    assert source.views == ("hand",)
    episode = source.episode(3, stride=4)
    assert episode.state.shape == (5, 9) and episode.state[1, 8] == np.float32(0.4)
    with pytest.raises(DataError, match=r"unknown view 'hand'.*Available: front, wrist"):
        open_dataset(dataset, feature_map=FeatureMap(views={"hand": "wrist"}))
    with pytest.raises(DataError, match="two views cannot get one name"):
        open_dataset(dataset, feature_map=FeatureMap(views={"front": "a", "wrist": "a"}))


def edit_lines(change: Callable[[list[str]], object]) -> Callable[[Path], None]:
    """Edit the lines of the episode index."""

    def damage(root: Path) -> None:
        lines = (root / EPISODES_PATH).read_text().splitlines()
        change(lines)
        (root / EPISODES_PATH).write_text("\n".join(lines))

    return damage


def edit_entry(**fields: object) -> Callable[[Path], None]:
    """Replace fields in the entry of episode 3."""
    return edit_lines(lambda lines: lines.__setitem__(3, json.dumps({**json.loads(lines[3]), **fields})))


def damage_file(template: str, change: Callable[[Path], object]) -> Callable[[Path], None]:
    """Damage a file of episode 3."""
    return lambda root: change(root / template.format(1, 3, "wrist"))


def edit_rows(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    return damage_file(DATA_PATH, lambda path: pq.write_table(change(pq.read_table(path)), path))


EPISODE_3 = ("episode_000003",)
EXCLUDING_ISSUES: dict[str, tuple[Callable[[Path], object], str, tuple[str, ...]]] = {
    "no JSON": (edit_lines(lambda lines: lines.__setitem__(3, "{")), "line 4 is not valid JSON", EPISODE_3),
    "no index": (edit_lines(lambda lines: lines.__setitem__(3, "{}")), "line 4 has no episode_index", EPISODE_3),
    "no length": (edit_entry(length=0), "episode 3 has length 0", EPISODE_3),
    "length is true": (edit_entry(length=True), "episode 3 has length True", EPISODE_3),
    "no task": (edit_entry(tasks=[]), "episode 3 has no tasks", EPISODE_3),
    "not listed": (edit_lines(lambda lines: lines.pop(3)), "episode 3 is not listed", EPISODE_3),
    "listed twice": (edit_lines(lambda lines: lines.append(lines[3])), "episode 3 is listed 2 times", EPISODE_3),
    "no rows": (damage_file(DATA_PATH, Path.unlink), "the parquet file does not exist", EPISODE_3),
    "rows cut": (damage_file(DATA_PATH, lambda path: truncate(path, 500)), "cut short or not parquet", EPISODE_3),
    "a row too few": (edit_rows(lambda table: table.slice(1)), "has 13 rows of episode 3", EPISODE_3),
    "rows of another": (
        edit_rows(
            lambda t: t.set_column(t.column_names.index("episode_index"), "episode_index", pa.array([2] * LENGTH))
        ),
        "has 0 rows of episode 3",
        EPISODE_3,
    ),
    "a column is missing": (
        edit_rows(lambda table: table.drop_columns("action")),
        "column action is missing",
        EPISODE_3,
    ),
    "no video": (damage_file(VIDEO_PATH, Path.unlink), "the video file does not exist", EPISODE_3),
    "video is a pointer": (damage_file(VIDEO_PATH, replace_by_lfs_pointer), "git-lfs pointer", EPISODE_3),
    "video cut": (
        damage_file(VIDEO_PATH, lambda path: truncate(path, path.stat().st_size - 40)),
        "is cut short",
        EPISODE_3,
    ),
    "a frame too few": (
        damage_file(VIDEO_PATH, lambda path: write_video(path, paint_frames(range(LENGTH - 1)), 10)),
        "has 13 frames of episode 3",
        EPISODE_3,
    ),
    "a frame too many": (
        damage_file(VIDEO_PATH, lambda path: write_video(path, paint_frames(range(LENGTH + 1)), 10)),
        "has 15 frames, the only episode in it has 14 rows",
        EPISODE_3,
    ),
    "video of another size": (
        damage_file(VIDEO_PATH, lambda path: write_video(path, paint_frames(range(LENGTH), 24, 32), 10)),
        "its images are 24x32",
        EPISODE_3,
    ),
    "no list of tasks": (lambda root: (root / "meta/tasks.jsonl").unlink(), "does not exist", ()),
}


@pytest.mark.parametrize("issue", EXCLUDING_ISSUES)
def test_issue_excludes_its_episode(dataset, tmp_path, issue):
    damage, message, affected = EXCLUDING_ISSUES[issue]
    root = tmp_path / "damaged"
    shutil.copytree(dataset, root)
    damage(root)
    source = open_dataset(root)
    assert message in "; ".join(map(str, source.issues)) and affected_episodes(source.issues) == affected
    before = {episode.name: episode for episode in open_dataset(dataset)}
    assert [meta.name for meta in source.meta] == [name for name in before if name not in affected]
    for episode in source:
        for view, frames in episode.views.items():
            assert np.array_equal(frames, before[episode.name].views[view])
        assert np.array_equal(episode.state, before[episode.name].state)


def test_unreadable_index_is_rejected(dataset, tmp_path):
    for content, message in ((None, "does not exist"), (b"\xff\xfe", "is not a text file"), (b"", "is empty")):
        root = tmp_path / str(len(message))
        shutil.copytree(dataset, root)
        (root / EPISODES_PATH).unlink() if content is None else (root / EPISODES_PATH).write_bytes(content)
        with pytest.raises(DataError, match=message):
            open_dataset(root)
