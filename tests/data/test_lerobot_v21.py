"""LeRobot v2.1: the same episodes come back as from v3.0, and a fault costs the episode that has it."""

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
from painted import cut, make_episode, numbers_in, painted, to_lfs_pointer

from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.issues import affected_episodes
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.video.files import write_video
from embodied_rm.errors import DataError

COUNT, LENGTH = 5, 14
LISTED = "meta/episodes.jsonl"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return write_v21_dataset(tmp_path_factory.mktemp("v21") / "whole", [make_episode(i, LENGTH) for i in range(COUNT)])


def test_what_was_stored_comes_back(whole):
    source = open_dataset(whole)
    assert source.views == ("front", "wrist") and source.fps == 10 and source.issues == ()
    for i, episode in enumerate(source):
        sent = make_episode(i, LENGTH)
        assert episode.name == f"episode_{i:06d}" and episode.instruction == sent.instruction
        assert numbers_in(episode.views["wrist"]) == list(range(100 * i, 100 * i + LENGTH))
        assert np.array_equal(episode.state, sent.state) and np.array_equal(episode.action, sent.action)
        assert episode.success is None and episode.progress is None and episode.subtasks == ()


def test_names_of_ones_own(whole):
    names = FeatureMap(views={"wrist": "hand"}, state=("observation.state", "action", "timestamp"))
    source = open_dataset(whole, feature_map=names)
    assert source.views == ("hand",)
    episode = source.episode(3, stride=4)
    assert episode.state.shape == (5, 9) and episode.state[1, 8] == np.float32(0.4)
    with pytest.raises(DataError, match=r"unknown view 'hand'.*Available: front, wrist"):
        open_dataset(whole, feature_map=FeatureMap(views={"hand": "wrist"}))
    with pytest.raises(DataError, match="two views cannot get one name"):
        open_dataset(whole, feature_map=FeatureMap(views={"front": "a", "wrist": "a"}))


def entries(change: Callable[[list[str]], object]) -> Callable[[Path], None]:
    """Edit the lines of the list of episodes."""

    def damage(root: Path) -> None:
        lines = (root / LISTED).read_text().splitlines()
        change(lines)
        (root / LISTED).write_text("\n".join(lines))

    return damage


def entry(**fields: object) -> Callable[[Path], None]:
    """Other fields in the entry of episode 3."""
    return entries(lambda lines: lines.__setitem__(3, json.dumps({**json.loads(lines[3]), **fields})))


def of_three(template: str, change: Callable[[Path], object]) -> Callable[[Path], None]:
    """Something done to a file of episode 3."""
    return lambda root: change(root / template.format(1, 3, "wrist"))


def rows(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    return of_three(DATA_PATH, lambda path: pq.write_table(change(pq.read_table(path)), path))


THREE = ("episode_000003",)
LEFT_OUT: dict[str, tuple[Callable[[Path], object], str, tuple[str, ...]]] = {
    "no JSON": (entries(lambda lines: lines.__setitem__(3, "{")), "line 4 is not valid JSON", THREE),
    "no index": (entries(lambda lines: lines.__setitem__(3, "{}")), "line 4 has no episode_index", THREE),
    "no length": (entry(length=0), "episode 3 has length 0", THREE),
    "length is true": (entry(length=True), "episode 3 has length True", THREE),
    "no task": (entry(tasks=[]), "episode 3 has no tasks", THREE),
    "not listed": (entries(lambda lines: lines.pop(3)), "episode 3 is not listed", THREE),
    "listed twice": (entries(lambda lines: lines.append(lines[3])), "episode 3 is listed 2 times", THREE),
    "no rows": (of_three(DATA_PATH, Path.unlink), "the parquet file does not exist", THREE),
    "rows cut": (of_three(DATA_PATH, lambda path: cut(path, 500)), "cut short or not parquet", THREE),
    "a row too few": (rows(lambda table: table.slice(1)), "has 13 rows of episode 3", THREE),
    "rows of another": (
        rows(lambda t: t.set_column(t.column_names.index("episode_index"), "episode_index", pa.array([2] * LENGTH))),
        "has 0 rows of episode 3",
        THREE,
    ),
    "a column is missing": (rows(lambda table: table.drop_columns("action")), "column action is missing", THREE),
    "no video": (of_three(VIDEO_PATH, Path.unlink), "the video file does not exist", THREE),
    "video is a pointer": (of_three(VIDEO_PATH, to_lfs_pointer), "git-lfs pointer", THREE),
    "video cut": (of_three(VIDEO_PATH, lambda path: cut(path, path.stat().st_size - 40)), "is cut short", THREE),
    "a frame too few": (
        of_three(VIDEO_PATH, lambda path: write_video(path, painted(range(LENGTH - 1)), 10)),
        "has 13 frames of episode 3",
        THREE,
    ),
    "a frame too many": (
        of_three(VIDEO_PATH, lambda path: write_video(path, painted(range(LENGTH + 1)), 10)),
        "has 15 frames, the only episode in it has 14 rows",
        THREE,
    ),
    "video of another size": (
        of_three(VIDEO_PATH, lambda path: write_video(path, painted(range(LENGTH), 24, 32), 10)),
        "its images are 24x32",
        THREE,
    ),
    "no list of tasks": (lambda root: (root / "meta/tasks.jsonl").unlink(), "does not exist", ()),
}


@pytest.mark.parametrize("fault", LEFT_OUT)
def test_a_fault_costs_the_episode_that_has_it(whole, tmp_path, fault):
    damage, said, who = LEFT_OUT[fault]
    root = tmp_path / "damaged"
    shutil.copytree(whole, root)
    damage(root)
    source = open_dataset(root)
    assert said in "; ".join(map(str, source.issues)) and affected_episodes(source.issues) == who
    before = {episode.name: episode for episode in open_dataset(whole)}
    assert [meta.name for meta in source.meta] == [name for name in before if name not in who]
    for episode in source:
        for view, frames in episode.views.items():
            assert np.array_equal(frames, before[episode.name].views[view])
        assert np.array_equal(episode.state, before[episode.name].state)


def test_a_list_that_cannot_be_read_is_refused(whole, tmp_path):
    for content, said in ((None, "does not exist"), (b"\xff\xfe", "is not a text file"), (b"", "is empty")):
        root = tmp_path / str(len(said))
        shutil.copytree(whole, root)
        (root / LISTED).unlink() if content is None else (root / LISTED).write_bytes(content)
        with pytest.raises(DataError, match=said):
            open_dataset(root)
