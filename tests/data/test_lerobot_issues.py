"""Every issue of a dataset folder is found on opening and reported with its file, all in one message."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from painted_frames import make_episode, paint_frames, replace_by_lfs_pointer, truncate

from embodied_rm.data.issues import affected_episodes
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.source import find_index
from embodied_rm.data.video.files import VideoWriter, write_video
from embodied_rm.errors import DataError, UserError

INFO_PATH = "meta/info.json"
EPISODES_PATH = "meta/episodes/chunk-000/file-000.parquet"
DATA_PATH = "data/chunk-000/file-000.parquet"
VIDEO_PATH = "videos/observation.images.wrist/chunk-000/file-000.mp4"
COUNT, LENGTH = 4, 20


@pytest.fixture(scope="module")
def dataset_path(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("issues") / "dataset"
    with DatasetWriter(path) as writer:
        for i in range(COUNT):
            writer.add(make_episode(i, LENGTH))
    return path


def edit_info(**changes: object) -> Callable[[Path], None]:
    def damage(root: Path) -> None:
        content = json.loads((root / INFO_PATH).read_text())
        (root / INFO_PATH).write_text(json.dumps({**content, **changes}))

    return damage


def edit_table(name: str, change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    return lambda root: pq.write_table(change(pq.read_table(root / name)), root / name)


def edit_file(name: str, change: Callable[[Path], object]) -> Callable[[Path], None]:
    return lambda root: change(root / name)


def set_cells(name: str, /, **changes: tuple[int, object]) -> Callable[[Path], None]:
    """Replace values in single rows of a table."""

    def change(old: pa.Table) -> pa.Table:
        for key, (row, value) in changes.items():
            key = key.replace("__", "/")
            column = old[key].to_pylist()
            column[row] = value
            old = old.set_column(old.column_names.index(key), key, pa.array(column, old.schema.field(key).type))
        return old

    return edit_table(name, change)


def cut_in_half(path: Path) -> None:
    truncate(path, path.stat().st_size // 2)


def drop_feature_type(root: Path) -> None:
    edit_info(features={"observation.images.wrist": {"shape": [48, 64, 3]}})(root)


def drop_video_features(root: Path) -> None:
    edit_info(features={"action": {"dtype": "float32", "shape": [3], "names": None}})(root)


def move_out_of_folder(path: Path) -> None:
    elsewhere = path.parents[4] / "elsewhere.mp4"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def write_other_size(root: Path) -> None:
    write_video(root / VIDEO_PATH, paint_frames(range(COUNT * LENGTH), 24, 32), 10)


def drop_last_frame(root: Path) -> None:
    with VideoWriter(root / VIDEO_PATH, 10, (48, 64)) as writer:
        for i in range(COUNT):
            writer.add(paint_frames(range(100 * i, 100 * i + LENGTH - (i == COUNT - 1))))


REJECTED = {
    "no description": (edit_file(INFO_PATH, Path.unlink), INFO_PATH, "does not exist"),
    "empty description": (edit_file(INFO_PATH, lambda p: p.write_text("")), INFO_PATH, "is empty"),
    "broken description": (edit_file(INFO_PATH, lambda p: p.write_text('{"codebase')), INFO_PATH, "not valid JSON"),
    "description is a list": (edit_file(INFO_PATH, lambda p: p.write_text("[]")), INFO_PATH, "JSON object"),
    "older version": (edit_info(codebase_version="v1.6"), INFO_PATH, "version 'v1.6'; only v2.x and v3.x can be read"),
    "no rate": (edit_info(fps=0), INFO_PATH, "fps is 0"),
    "rate is no number": (edit_info(fps="10"), INFO_PATH, "'fps' is '10'"),
    "path out of the folder": (edit_info(data_path="../{chunk_index}.parquet"), INFO_PATH, "'data_path' is '../"),
    "features without type": (drop_feature_type, INFO_PATH, "no dtype and shape"),
    "no video features": (drop_video_features, "damaged", "no videos"),
    "no episodes listed": (edit_file(EPISODES_PATH, Path.unlink), "meta/episodes", "no episodes are listed"),
    "list of nothing": (edit_table(EPISODES_PATH, lambda t: t.slice(0, 0)), "meta/episodes", "lists no episodes"),
    "another dataset's description": (
        edit_info(total_episodes=10**12),
        "meta/episodes",
        "lists 4 episodes, info.json states",
    ),
    "tasks are no number": (edit_info(total_tasks=None), INFO_PATH, "'total_tasks' is None"),
    "list cut": (edit_file(EPISODES_PATH, cut_in_half), EPISODES_PATH, "cut short or not parquet"),
    "list is a pointer": (edit_file(EPISODES_PATH, replace_by_lfs_pointer), EPISODES_PATH, "git-lfs pointer"),
    "list without lengths": (
        edit_table(EPISODES_PATH, lambda t: t.drop_columns("length")),
        EPISODES_PATH,
        "column length is missing",
    ),
    "lengths are text": (
        edit_table(
            EPISODES_PATH, lambda t: t.set_column(t.column_names.index("length"), "length", pa.array(["20"] * COUNT))
        ),
        EPISODES_PATH,
        "column length holds string",
    ),
    "data missing": (edit_file(DATA_PATH, Path.unlink), DATA_PATH, "does not exist"),
    "data without footer": (edit_file(DATA_PATH, cut_in_half), DATA_PATH, "cut short or not parquet"),
    "data is a pointer": (edit_file(DATA_PATH, replace_by_lfs_pointer), DATA_PATH, "git-lfs pointer"),
    "column missing": (
        edit_table(DATA_PATH, lambda t: t.drop_columns("action")),
        DATA_PATH,
        "column action is missing",
    ),
    "times are text": (
        edit_table(
            DATA_PATH, lambda t: t.set_column(t.column_names.index("timestamp"), "timestamp", pa.array(["0"] * len(t)))
        ),
        DATA_PATH,
        "holds string where numbers are expected",
    ),
    "video missing": (edit_file(VIDEO_PATH, Path.unlink), VIDEO_PATH, "does not exist"),
    "video empty": (edit_file(VIDEO_PATH, lambda p: p.write_bytes(b"")), VIDEO_PATH, "is empty"),
    "video is a pointer": (edit_file(VIDEO_PATH, replace_by_lfs_pointer), VIDEO_PATH, "git-lfs pointer"),
    "video cut": (edit_file(VIDEO_PATH, cut_in_half), VIDEO_PATH, "is cut short"),
    "video leads away": (edit_file(VIDEO_PATH, move_out_of_folder), VIDEO_PATH, "leads out of the dataset's folder"),
    "images of another size": (write_other_size, VIDEO_PATH, "its images are 24x32, info.json states 48x64"),
}


@pytest.mark.parametrize("issue", REJECTED)
def test_unusable_dataset_is_rejected(dataset_path, tmp_path, issue):
    damage, file_name, message = REJECTED[issue]
    root = tmp_path / "damaged"
    shutil.copytree(dataset_path, root)
    damage(root)
    with pytest.raises(DataError) as caught:
        LeRobotDataset(root)
    assert file_name in str(caught.value) and message in str(caught.value)
    assert "\n" not in str(caught.value)


EXCLUDING_ISSUES = {
    "fewer episodes than stated": (
        edit_info(total_episodes=5),
        "meta/episodes",
        "episode 4 is not listed",
        "episode_000004",
    ),
    "more episodes than stated": (edit_info(total_episodes=3), "meta/episodes", "info.json states 3", "trial_3"),
    "wrong total of frames": (edit_info(total_frames=81), INFO_PATH, "states 81 frames, the episodes have 80", None),
    "wrong total of tasks": (edit_info(total_tasks=5), INFO_PATH, "states 5 tasks, 2 are listed", None),
    "a name that leads away": (
        set_cells(EPISODES_PATH, name=(1, "../../evil")),
        EPISODES_PATH,
        "is not a valid episode name",
        "../../evil",
    ),
    "no tasks": (edit_file("meta/tasks.parquet", Path.unlink), "meta", "does not exist", None),
    "episode missing": (
        edit_table(EPISODES_PATH, lambda t: t.take([0, 1, 3])),
        "meta/episodes",
        "episode 2 is not listed",
        "episode_000002",
    ),
    "episode twice": (
        edit_table(EPISODES_PATH, lambda t: t.take([0, 1, 1, 2, 3])),
        "meta/episodes",
        "episode 1 is listed 2 times",
        "trial_1",
    ),
    "empty episode": (set_cells(EPISODES_PATH, length=(1, 0)), EPISODES_PATH, "episode 1 has length 0", "trial_1"),
    "null length": (set_cells(EPISODES_PATH, length=(1, None)), EPISODES_PATH, "episode 1 has no length", "trial_1"),
    "no instruction": (set_cells(EPISODES_PATH, tasks=(1, [])), EPISODES_PATH, "episode 1 has no tasks", "trial_1"),
    "shifted rows": (
        set_cells(EPISODES_PATH, dataset_from_index=(1, 19)),
        DATA_PATH,
        "index is 20 in frame 0 of episode 1, expected 19",
        "trial_1",
    ),
    "backward subtask": (
        set_cells(EPISODES_PATH, subtask_start_frames=(2, [15, 3])),
        EPISODES_PATH,
        "subtasks of episode 2 are invalid",
        "trial_2",
    ),
    "subtask past the end": (
        set_cells(EPISODES_PATH, subtask_end_frames=(2, [10, 99])),
        EPISODES_PATH,
        "ends at frame 99",
        "trial_2",
    ),
    "data in a missing file": (
        set_cells(EPISODES_PATH, data__file_index=(3, 7)),
        "file-007.parquet",
        "does not exist",
        "trial_3",
    ),
    "last row missing": (
        edit_table(DATA_PATH, lambda t: t.slice(0, len(t) - 1)),
        DATA_PATH,
        "has 19 rows of episode 3, which has length 20",
        "trial_3",
    ),
    "a row missing in between": (
        edit_table(DATA_PATH, lambda t: t.take([*range(25), *range(26, len(t))])),
        DATA_PATH,
        "has 19 rows of episode 1",
        "trial_1",
    ),
    "rows out of order": (
        edit_table(DATA_PATH, lambda t: t.take([1, 0, *range(2, len(t))])),
        DATA_PATH,
        "frame_index is 1 in frame 0 of episode 0, expected 0",
        "trial_0",
    ),
    "rows apart": (
        edit_table(DATA_PATH, lambda t: t.take([*range(39), 79, *range(40, 79), 39])),
        DATA_PATH,
        "the rows of episode 1 do not follow each other",
        "trial_1, trial_3",
    ),
    "row of another episode": (
        set_cells(DATA_PATH, episode_index=(33, 7)),
        DATA_PATH,
        "has 19 rows of episode 1",
        "trial_1",
    ),
    "time jumps": (
        set_cells(DATA_PATH, timestamp=(33, 99.0)),
        DATA_PATH,
        "timestamp falls from 99.000 to 1.400 s in frame 14 of episode 1",
        "trial_1",
    ),
    "time is null": (set_cells(DATA_PATH, timestamp=(33, None)), DATA_PATH, "timestamp is nan in frame 13", "trial_1"),
    "unknown task": (
        set_cells(DATA_PATH, task_index=(41, 2)),
        DATA_PATH,
        "task_index of episode 2 names no task",
        "trial_2",
    ),
    "video too short": (
        drop_last_frame,
        VIDEO_PATH,
        "has 19 frames of episode 3, which has 20 rows",
        "trial_3",
    ),
    "video starts elsewhere": (
        set_cells(EPISODES_PATH, **{"videos__observation.images.wrist__from_timestamp": (1, 1.0)}),
        VIDEO_PATH,
        "episodes 0 and 1 overlap",
        "trial_1",
    ),
}


@pytest.mark.parametrize("issue", EXCLUDING_ISSUES)
def test_issue_excludes_its_episode_and_others_are_unchanged(dataset_path, tmp_path, issue):
    damage, file_name, message, affected = EXCLUDING_ISSUES[issue]
    root = tmp_path / "damaged"
    shutil.copytree(dataset_path, root)
    damage(root)
    dataset = LeRobotDataset(root)
    issue_list = "; ".join(map(str, dataset.issues))
    assert file_name in issue_list and message in issue_list and "\n" not in issue_list
    assert ", ".join(affected_episodes(dataset.issues)) == (affected or "")
    before = {episode.name: episode for episode in LeRobotDataset(dataset_path)}
    # Their names were stored in their entries.
    excluded_names = {"episode missing": ["trial_2"], "a name that leads away": ["trial_1"]}.get(
        issue, (affected or "").split(", ")
    )
    assert [meta.name for meta in dataset.meta] == [name for name in before if name not in excluded_names]
    for episode in dataset:
        for view, frames in episode.views.items():
            assert np.array_equal(frames, before[episode.name].views[view])
        for column in ("state", "action", "progress"):
            assert np.array_equal(getattr(episode, column), getattr(before[episode.name], column))


def test_all_issues_are_listed_at_once(dataset_path, tmp_path):
    root = tmp_path / "damaged"
    shutil.copytree(dataset_path, root)
    edit_info(total_frames=1)(root)
    cut_in_half(root / DATA_PATH)
    (root / VIDEO_PATH).unlink()
    with pytest.raises(DataError) as caught:
        LeRobotDataset(root)
    for part in ("no episode can be used", "states 1 frames", DATA_PATH, VIDEO_PATH):
        assert part in str(caught.value)


def test_missing_value_is_found_on_reading(dataset_path, tmp_path):
    root = tmp_path / "damaged"
    shutil.copytree(dataset_path, root)
    set_cells(DATA_PATH, action=(25, None))(root)
    dataset = LeRobotDataset(root)
    assert dataset.episode(0).action.shape == (LENGTH, 3)
    with pytest.raises(DataError, match="action is missing in a row of episode 1"):
        dataset.episode(1)


def test_episodes_keep_their_indices_if_one_is_excluded(dataset_path, tmp_path):
    root = tmp_path / "damaged"
    shutil.copytree(dataset_path, root)
    set_cells(EPISODES_PATH, length=(1, None))(root)
    dataset = LeRobotDataset(root)
    assert [(meta.episode_index, meta.dataset_from_index) for meta in dataset.meta] == [
        (0, 0),
        (2, 2 * LENGTH),
        (3, 3 * LENGTH),
    ]
    assert dataset.meta[find_index(dataset, 2)].name == "trial_2"
    with pytest.raises(UserError, match="episode 1 is not among the 3 readable episodes; it was excluded"):
        find_index(dataset, 1)


def test_valid_episode_is_kept_next_to_an_invalid_entry(tmp_path):
    with DatasetWriter(tmp_path / "two") as writer:
        for i in range(2):
            writer.add(make_episode(i, LENGTH))
    set_cells(EPISODES_PATH, length=(1, None))(tmp_path / "two")
    assert [meta.name for meta in LeRobotDataset(tmp_path / "two").meta] == ["trial_0"]


def test_opening_and_reading_writes_nothing(dataset_path):
    before = {path: path.stat().st_mtime_ns for path in dataset_path.rglob("*")}
    list(LeRobotDataset(dataset_path))
    assert {path: path.stat().st_mtime_ns for path in dataset_path.rglob("*")} == before


def test_valid_dataset_has_no_issues(dataset_path):
    assert [len(episode) for episode in LeRobotDataset(dataset_path)] == [LENGTH] * COUNT
    assert np.isfinite(LeRobotDataset(dataset_path).episode(3).state).all()
