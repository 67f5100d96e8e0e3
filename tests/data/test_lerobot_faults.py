"""Whatever is wrong with a dataset folder is found when it is opened, and named with its file, all in one message."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from painted import cut, make_episode, painted, to_lfs_pointer

from embodied_rm.data.lerobot.read import LeRobotDataset
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.video.files import write_video
from embodied_rm.errors import DataError

INFO = "meta/info.json"
LISTED = "meta/episodes/chunk-000/file-000.parquet"
ROWS = "data/chunk-000/file-000.parquet"
VIDEO = "videos/observation.images.wrist/chunk-000/file-000.mp4"
COUNT, LENGTH = 4, 20


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("faults") / "whole"
    with DatasetWriter(path) as writer:
        for i in range(COUNT):
            writer.add(make_episode(i, LENGTH))
    return path


def info(**changes: object) -> Callable[[Path], None]:
    def damage(root: Path) -> None:
        content = json.loads((root / INFO).read_text())
        (root / INFO).write_text(json.dumps({**content, **changes}))

    return damage


def table(name: str, change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    return lambda root: pq.write_table(change(pq.read_table(root / name)), root / name)


def file(name: str, change: Callable[[Path], object]) -> Callable[[Path], None]:
    return lambda root: change(root / name)


def cells(name: str, **changes: tuple[int, object]) -> Callable[[Path], None]:
    """Put other values into single rows of a table's columns."""

    def change(old: pa.Table) -> pa.Table:
        for key, (row, value) in changes.items():
            key = key.replace("__", "/")
            column = old[key].to_pylist()
            column[row] = value
            old = old.set_column(old.column_names.index(key), key, pa.array(column, old.schema.field(key).type))
        return old

    return table(name, change)


def half(path: Path) -> None:
    cut(path, path.stat().st_size // 2)


def features_without_type(root: Path) -> None:
    info(features={"observation.images.wrist": {"shape": [48, 64, 3]}})(root)


def no_video_features(root: Path) -> None:
    info(features={"action": {"dtype": "float32", "shape": [3], "names": None}})(root)


def video_without_its_last_frame(root: Path) -> None:
    write_video(root / VIDEO, painted(range(COUNT * LENGTH - 1)), 10)


FAULTS = {
    "no description": (file(INFO, Path.unlink), INFO, "does not exist"),
    "empty description": (file(INFO, lambda p: p.write_text("")), INFO, "is empty"),
    "broken description": (file(INFO, lambda p: p.write_text('{"codebase')), INFO, "not valid JSON"),
    "description is a list": (file(INFO, lambda p: p.write_text("[]")), INFO, "JSON object"),
    "older version": (info(codebase_version="v2.1"), INFO, "version 'v2.1'; only 'v3.0'"),
    "no rate": (info(fps=0), INFO, "fps is 0"),
    "rate is no number": (info(fps="10"), INFO, "'fps' is '10'"),
    "path out of the folder": (info(data_path="../{chunk_index}.parquet"), INFO, "'data_path' is '../"),
    "features without type": (features_without_type, INFO, "no dtype and shape"),
    "no video features": (no_video_features, "damaged", "no videos"),
    "wrong total of episodes": (info(total_episodes=9), INFO[5:], "states 9 episodes, 4 are listed"),
    "wrong total of frames": (info(total_frames=81), INFO[5:], "states 81 frames, the episodes have 80"),
    "wrong total of tasks": (info(total_tasks=5), INFO[5:], "states 5 tasks"),
    "no tasks": (file("meta/tasks.parquet", Path.unlink), "meta/tasks.parquet", "does not exist"),
    "no episodes listed": (file(LISTED, Path.unlink), "meta/episodes", "no episodes are listed"),
    "list cut": (file(LISTED, half), LISTED, "cut short or not parquet"),
    "list is a pointer": (file(LISTED, to_lfs_pointer), LISTED, "git-lfs pointer"),
    "list without lengths": (table(LISTED, lambda t: t.drop_columns("length")), LISTED, "column length is missing"),
    "lengths are text": (
        table(LISTED, lambda t: t.set_column(t.column_names.index("length"), "length", pa.array(["20"] * COUNT))),
        LISTED,
        "column length holds string",
    ),
    "episode missing": (table(LISTED, lambda t: t.take([0, 1, 3])), "damaged", "episode 2 is missing or listed twice"),
    "episode twice": (table(LISTED, lambda t: t.take([0, 1, 1, 3])), "damaged", "episode 2 is missing or listed twice"),
    "empty episode": (cells(LISTED, length=(1, 0)), "meta/episodes", "episode 1 has length 0"),
    "null length": (cells(LISTED, length=(1, None)), "meta/episodes", "episode 1 has no length"),
    "no instruction": (cells(LISTED, tasks=(1, [])), "meta/episodes", "episode 1 has no tasks"),
    "overlapping rows": (cells(LISTED, dataset_from_index=(1, 19)), "damaged", "episode 1 starts at row 19"),
    "backward step": (cells(LISTED, steps__start=(2, [15, 3])), "meta/episodes", "steps of episode 2 make no sense"),
    "step past the end": (cells(LISTED, steps__end=(2, [10, 99])), "meta/episodes", "ends at 99"),
    "data missing": (file(ROWS, Path.unlink), ROWS, "does not exist"),
    "data in a missing file": (cells(LISTED, data__file_index=(3, 7)), "file-007.parquet", "does not exist"),
    "data without footer": (file(ROWS, half), ROWS, "cut short or not parquet"),
    "data is a pointer": (file(ROWS, to_lfs_pointer), ROWS, "git-lfs pointer"),
    "row missing": (table(ROWS, lambda t: t.slice(0, len(t) - 1)), ROWS, "has 79 rows, its episodes have 80"),
    "rows out of order": (
        table(ROWS, lambda t: t.take([1, 0, *range(2, len(t))])),
        ROWS,
        "index is 1 in row 0 where 0 is due",
    ),
    "time jumps": (cells(ROWS, timestamp=(33, 99.0)), ROWS, "timestamp is 99.0 in row 33"),
    "time is null": (cells(ROWS, timestamp=(33, None)), ROWS, "timestamp is nan in row 33"),
    "column missing": (table(ROWS, lambda t: t.drop_columns("action")), ROWS, "column action is missing"),
    "video missing": (file(VIDEO, Path.unlink), VIDEO, "does not exist"),
    "video empty": (file(VIDEO, lambda p: p.write_bytes(b"")), VIDEO, "is empty"),
    "video is a pointer": (file(VIDEO, to_lfs_pointer), VIDEO, "git-lfs pointer"),
    "video cut": (file(VIDEO, half), VIDEO, "is cut short"),
    "video too short": (video_without_its_last_frame, VIDEO, "has 19 frames of episode 3, which has 20 rows"),
    "video starts elsewhere": (
        cells(LISTED, **{"videos__observation.images.wrist__from_timestamp": (1, 1.0)}),
        VIDEO,
        "episodes overlap",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_on_opening(whole, tmp_path, fault):
    damage, where, said = FAULTS[fault]
    root = tmp_path / "damaged"
    shutil.copytree(whole, root)
    damage(root)
    with pytest.raises(DataError) as caught:
        LeRobotDataset(root)
    assert where in str(caught.value) and said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_faults_are_listed_at_once(whole, tmp_path):
    root = tmp_path / "damaged"
    shutil.copytree(whole, root)
    info(total_frames=1)(root)
    half(root / ROWS)
    (root / VIDEO).unlink()
    with pytest.raises(DataError) as caught:
        LeRobotDataset(root)
    for part in ("states 1 frames", ROWS, VIDEO):
        assert part in str(caught.value)


def test_a_missing_number_is_found_when_read(whole, tmp_path):
    root = tmp_path / "damaged"
    shutil.copytree(whole, root)
    cells(ROWS, action=(25, None))(root)
    dataset = LeRobotDataset(root)
    assert dataset.episode(0).action.shape == (LENGTH, 3)
    with pytest.raises(DataError, match="action is missing in a row of episode 1"):
        dataset.episode(1)


def test_opening_and_reading_writes_nothing(whole):
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    list(LeRobotDataset(whole))
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before


def test_a_whole_dataset_is_not_suspected(whole):
    assert [len(episode) for episode in LeRobotDataset(whole)] == [LENGTH] * COUNT
    assert np.isfinite(LeRobotDataset(whole).episode(3).state).all()
