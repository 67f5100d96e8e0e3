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

from embodied_rm.data.issues import affected_episodes
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.source import find_index
from embodied_rm.data.video.files import VideoWriter, write_video
from embodied_rm.errors import DataError, UserError

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


def cells(name: str, /, **changes: tuple[int, object]) -> Callable[[Path], None]:
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


def moved_out(path: Path) -> None:
    elsewhere = path.parents[4] / "elsewhere.mp4"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def other_size(root: Path) -> None:
    write_video(root / VIDEO, painted(range(COUNT * LENGTH), 24, 32), 10)


def video_without_its_last_frame(root: Path) -> None:
    with VideoWriter(root / VIDEO, 10, (48, 64)) as writer:
        for i in range(COUNT):
            writer.add(painted(range(100 * i, 100 * i + LENGTH - (i == COUNT - 1))))


REFUSED = {
    "no description": (file(INFO, Path.unlink), INFO, "does not exist"),
    "empty description": (file(INFO, lambda p: p.write_text("")), INFO, "is empty"),
    "broken description": (file(INFO, lambda p: p.write_text('{"codebase')), INFO, "not valid JSON"),
    "description is a list": (file(INFO, lambda p: p.write_text("[]")), INFO, "JSON object"),
    "older version": (info(codebase_version="v1.6"), INFO, "version 'v1.6'; only 'v3.0' or 'v2.1' or 'v2.0'"),
    "no rate": (info(fps=0), INFO, "fps is 0"),
    "rate is no number": (info(fps="10"), INFO, "'fps' is '10'"),
    "path out of the folder": (info(data_path="../{chunk_index}.parquet"), INFO, "'data_path' is '../"),
    "features without type": (features_without_type, INFO, "no dtype and shape"),
    "no video features": (no_video_features, "damaged", "no videos"),
    "no episodes listed": (file(LISTED, Path.unlink), "meta/episodes", "no episodes are listed"),
    "list of nothing": (table(LISTED, lambda t: t.slice(0, 0)), "meta/episodes", "lists no episodes"),
    "another dataset's description": (
        info(total_episodes=10**12),
        "meta/episodes",
        "lists 4 episodes, info.json states",
    ),
    "tasks are no number": (info(total_tasks=None), INFO, "'total_tasks' is None"),
    "list cut": (file(LISTED, half), LISTED, "cut short or not parquet"),
    "list is a pointer": (file(LISTED, to_lfs_pointer), LISTED, "git-lfs pointer"),
    "list without lengths": (table(LISTED, lambda t: t.drop_columns("length")), LISTED, "column length is missing"),
    "lengths are text": (
        table(LISTED, lambda t: t.set_column(t.column_names.index("length"), "length", pa.array(["20"] * COUNT))),
        LISTED,
        "column length holds string",
    ),
    "data missing": (file(ROWS, Path.unlink), ROWS, "does not exist"),
    "data without footer": (file(ROWS, half), ROWS, "cut short or not parquet"),
    "data is a pointer": (file(ROWS, to_lfs_pointer), ROWS, "git-lfs pointer"),
    "column missing": (table(ROWS, lambda t: t.drop_columns("action")), ROWS, "column action is missing"),
    "times are text": (
        table(ROWS, lambda t: t.set_column(t.column_names.index("timestamp"), "timestamp", pa.array(["0"] * len(t)))),
        ROWS,
        "holds string where numbers are expected",
    ),
    "video missing": (file(VIDEO, Path.unlink), VIDEO, "does not exist"),
    "video empty": (file(VIDEO, lambda p: p.write_bytes(b"")), VIDEO, "is empty"),
    "video is a pointer": (file(VIDEO, to_lfs_pointer), VIDEO, "git-lfs pointer"),
    "video cut": (file(VIDEO, half), VIDEO, "is cut short"),
    "video leads away": (file(VIDEO, moved_out), VIDEO, "leads out of the dataset's folder"),
    "images of another size": (other_size, VIDEO, "its images are 24x32, info.json states 48x64"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_a_dataset_of_which_nothing_can_be_believed_is_refused(whole, tmp_path, fault):
    damage, where, said = REFUSED[fault]
    root = tmp_path / "damaged"
    shutil.copytree(whole, root)
    damage(root)
    with pytest.raises(DataError) as caught:
        LeRobotDataset(root)
    assert where in str(caught.value) and said in str(caught.value)
    assert "\n" not in str(caught.value)


LEFT_OUT = {
    "fewer episodes than stated": (
        info(total_episodes=5),
        "meta/episodes",
        "episode 4 is not listed",
        "episode_000004",
    ),
    "more episodes than stated": (info(total_episodes=3), "meta/episodes", "info.json states 3", "trial_3"),
    "wrong total of frames": (info(total_frames=81), INFO, "states 81 frames, the episodes have 80", None),
    "wrong total of tasks": (info(total_tasks=5), INFO, "states 5 tasks, 2 are listed", None),
    "a name that leads away": (cells(LISTED, name=(1, "../../evil")), LISTED, "is no name of an episode", "../../evil"),
    "no tasks": (file("meta/tasks.parquet", Path.unlink), "meta", "does not exist", None),
    "episode missing": (
        table(LISTED, lambda t: t.take([0, 1, 3])),
        "meta/episodes",
        "episode 2 is not listed",
        "episode_000002",
    ),
    "episode twice": (
        table(LISTED, lambda t: t.take([0, 1, 1, 2, 3])),
        "meta/episodes",
        "episode 1 is listed 2 times",
        "trial_1",
    ),
    "empty episode": (cells(LISTED, length=(1, 0)), LISTED, "episode 1 has length 0", "trial_1"),
    "null length": (cells(LISTED, length=(1, None)), LISTED, "episode 1 has no length", "trial_1"),
    "no instruction": (cells(LISTED, tasks=(1, [])), LISTED, "episode 1 has no tasks", "trial_1"),
    "shifted rows": (
        cells(LISTED, dataset_from_index=(1, 19)),
        ROWS,
        "index is 20 in frame 0 of episode 1, expected 19",
        "trial_1",
    ),
    "backward step": (cells(LISTED, subtask_start_frames=(2, [15, 3])), LISTED, "subtasks of episode 2 are invalid", "trial_2"),
    "step past the end": (cells(LISTED, subtask_end_frames=(2, [10, 99])), LISTED, "ends at 99", "trial_2"),
    "data in a missing file": (cells(LISTED, data__file_index=(3, 7)), "file-007.parquet", "does not exist", "trial_3"),
    "last row missing": (
        table(ROWS, lambda t: t.slice(0, len(t) - 1)),
        ROWS,
        "has 19 rows of episode 3, which has length 20",
        "trial_3",
    ),
    "a row missing in between": (
        table(ROWS, lambda t: t.take([*range(25), *range(26, len(t))])),
        ROWS,
        "has 19 rows of episode 1",
        "trial_1",
    ),
    "rows out of order": (
        table(ROWS, lambda t: t.take([1, 0, *range(2, len(t))])),
        ROWS,
        "frame_index is 1 in frame 0 of episode 0, where 0 is due",
        "trial_0",
    ),
    "rows apart": (
        table(ROWS, lambda t: t.take([*range(39), 79, *range(40, 79), 39])),
        ROWS,
        "the rows of episode 1 do not follow each other",
        "trial_1, trial_3",
    ),
    "row of another episode": (cells(ROWS, episode_index=(33, 7)), ROWS, "has 19 rows of episode 1", "trial_1"),
    "time jumps": (cells(ROWS, timestamp=(33, 99.0)), ROWS, "timestamp is 99 in frame 13 of episode 1", "trial_1"),
    "time is null": (cells(ROWS, timestamp=(33, None)), ROWS, "timestamp is nan in frame 13", "trial_1"),
    "unknown task": (cells(ROWS, task_index=(41, 2)), ROWS, "task_index of episode 2 names no task", "trial_2"),
    "video too short": (
        video_without_its_last_frame,
        VIDEO,
        "has 19 frames of episode 3, which has 20 rows",
        "trial_3",
    ),
    "video starts elsewhere": (
        cells(LISTED, **{"videos__observation.images.wrist__from_timestamp": (1, 1.0)}),
        VIDEO,
        "episodes 0 and 1 overlap",
        "trial_1",
    ),
}


@pytest.mark.parametrize("fault", LEFT_OUT)
def test_an_episode_with_a_fault_is_left_out_by_name_and_the_others_are_what_they_were(whole, tmp_path, fault):
    damage, where, said, who = LEFT_OUT[fault]
    root = tmp_path / "damaged"
    shutil.copytree(whole, root)
    damage(root)
    dataset = LeRobotDataset(root)
    told = "; ".join(map(str, dataset.issues))
    assert where in told and said in told and "\n" not in told
    assert ", ".join(affected_episodes(dataset.issues)) == (who or "")
    before = {episode.name: episode for episode in LeRobotDataset(whole)}
    # Their names went with their entries.
    gone = {"episode missing": ["trial_2"], "a name that leads away": ["trial_1"]}.get(fault, (who or "").split(", "))
    assert [meta.name for meta in dataset.meta] == [name for name in before if name not in gone]
    for episode in dataset:
        for view, frames in episode.views.items():
            assert np.array_equal(frames, before[episode.name].views[view])
        for column in ("state", "action", "progress"):
            assert np.array_equal(getattr(episode, column), getattr(before[episode.name], column))


def test_all_faults_are_listed_at_once(whole, tmp_path):
    root = tmp_path / "damaged"
    shutil.copytree(whole, root)
    info(total_frames=1)(root)
    half(root / ROWS)
    (root / VIDEO).unlink()
    with pytest.raises(DataError) as caught:
        LeRobotDataset(root)
    for part in ("no episode can be used", "states 1 frames", ROWS, VIDEO):
        assert part in str(caught.value)


def test_a_missing_number_is_found_when_read(whole, tmp_path):
    root = tmp_path / "damaged"
    shutil.copytree(whole, root)
    cells(ROWS, action=(25, None))(root)
    dataset = LeRobotDataset(root)
    assert dataset.episode(0).action.shape == (LENGTH, 3)
    with pytest.raises(DataError, match="action is missing in a row of episode 1"):
        dataset.episode(1)


def test_episodes_keep_their_numbers_when_one_is_left_out(whole, tmp_path):
    root = tmp_path / "damaged"
    shutil.copytree(whole, root)
    cells(LISTED, length=(1, None))(root)
    dataset = LeRobotDataset(root)
    assert [(meta.episode_index, meta.dataset_from_index) for meta in dataset.meta] == [(0, 0), (2, 2 * LENGTH), (3, 3 * LENGTH)]
    assert dataset.meta[find_index(dataset, 2)].name == "trial_2"
    with pytest.raises(UserError, match="episode 1 is not among the 3 readable episodes; it was excluded"):
        find_index(dataset, 1)


def test_a_sound_episode_is_not_blamed_for_the_entry_of_its_neighbor(tmp_path):
    with DatasetWriter(tmp_path / "two") as writer:
        for i in range(2):
            writer.add(make_episode(i, LENGTH))
    cells(LISTED, length=(1, None))(tmp_path / "two")
    assert [meta.name for meta in LeRobotDataset(tmp_path / "two").meta] == ["trial_0"]


def test_opening_and_reading_writes_nothing(whole):
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    list(LeRobotDataset(whole))
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before


def test_a_whole_dataset_is_not_suspected(whole):
    assert [len(episode) for episode in LeRobotDataset(whole)] == [LENGTH] * COUNT
    assert np.isfinite(LeRobotDataset(whole).episode(3).state).all()
