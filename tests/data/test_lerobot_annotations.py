"""Annotations that recorders and tools of others write into LeRobot datasets are read, or their absence is told."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lerobot_v21 import write_v21_dataset
from painted_frames import make_episode

from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.types import Subtask

LENGTHS = (8, 6)
DATA, EPISODES = "data/chunk-000/file-000.parquet", "meta/episodes/chunk-000/file-000.parquet"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """A dataset of another program: without the columns of this package."""
    path = tmp_path / "data"
    with DatasetWriter(path) as writer:
        for number, length in enumerate(LENGTHS):
            writer.add(make_episode(number, length))
    names = pq.read_schema(path / EPISODES).names
    edit_table(path / EPISODES, drop=[name for name in names if name in ("success", "name") or "subtask" in name])
    edit_table(path / DATA, drop=["subtask_index", "progress"])
    edit_info(path, {"subtask_index": None, "progress": None})
    return path


def edit_table(path: Path, *, drop: list[str] = [], **columns: Any) -> None:  # noqa: B006  it is not changed
    table = pq.read_table(path)
    table = table.drop_columns([name for name in (*drop, *columns) if name in table.column_names])
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    pq.write_table(table, path)


def edit_info(path: Path, features: Mapping[str, Any]) -> None:
    info = json.loads((path / "meta/info.json").read_text())
    kept = {**info["features"], **features}
    info["features"] = {name: feature for name, feature in kept.items() if feature is not None}
    (path / "meta/info.json").write_text(json.dumps(info))


def add_frames(path: Path, name: str, dtype: str, values: list[Any]) -> None:
    edit_table(path / DATA, **{name: values})
    edit_info(path, {name: {"dtype": dtype, "shape": [1], "names": None}})


@pytest.mark.parametrize("name", ["next.success", "success", "is_success"])
@pytest.mark.parametrize("listed", [False, True])
def test_success_per_frame_is_that_of_the_last_frame(dataset: Path, name: str, listed: bool) -> None:
    flags = [False] * 7 + [True] + [False] * 6
    add_frames(dataset, name, "bool", [[flag] for flag in flags] if listed else flags)
    assert [meta.success for meta in open_dataset(dataset).meta] == [True, False]


def test_a_success_that_did_not_last_is_unknown(dataset: Path) -> None:
    add_frames(dataset, "next.success", "int64", [0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1])
    assert [meta.success for meta in open_dataset(dataset).meta] == [None, True]


def test_without_such_a_column_success_is_unknown(dataset: Path) -> None:
    assert [meta.success for meta in open_dataset(dataset).meta] == [None, None]


def sarm_columns(prefix: str) -> dict[str, Any]:
    """Last frames are included; the first episode's subtasks share a frame."""
    return {
        f"{prefix}subtask_names": [["reach", "lift"], ["reach"]],
        f"{prefix}subtask_start_frames": [[0, 3], [1]],
        f"{prefix}subtask_end_frames": [[3, 7], [4]],
    }


READ = [
    (Subtask(name="reach", start=0, end=3), Subtask(name="lift", start=3, end=8)),
    (Subtask(name="reach", start=1, end=5),),
]


@pytest.mark.parametrize("prefix", ["", "sparse_", "dense_"])
def test_subtasks_of_lerobots_annotation_tools_are_read(dataset: Path, prefix: str) -> None:
    edit_table(dataset / EPISODES, **sarm_columns(prefix))
    assert [meta.subtasks for meta in open_dataset(dataset).meta] == READ


def test_dense_subtasks_precede_sparse_ones(dataset: Path) -> None:
    sparse = {"sparse_subtask_names": [["task"], ["task"]], "sparse_subtask_start_frames": [[0], [0]]}
    edit_table(dataset / EPISODES, **sarm_columns("dense_"), **sparse, sparse_subtask_end_frames=[[7], [5]])
    assert [meta.subtasks for meta in open_dataset(dataset).meta] == READ


def test_they_are_read_from_version_2_1_too(tmp_path: Path) -> None:
    path = write_v21_dataset(tmp_path / "old", [make_episode(number, length) for number, length in enumerate(LENGTHS)])
    lines = [json.loads(line) for line in (path / "meta/episodes.jsonl").read_text().splitlines()]
    for number, line in enumerate(lines):
        line |= {key: values[number] for key, values in sarm_columns("sparse_").items()}
    (path / "meta/episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [meta.subtasks for meta in open_dataset(path).meta] == READ


def test_subtasks_that_do_not_fit_are_reported(dataset: Path) -> None:
    edit_table(dataset / EPISODES, **{**sarm_columns("dense_"), "dense_subtask_end_frames": [[3], [4]]})
    source = open_dataset(dataset)
    assert [meta.subtasks for meta in source.meta] == READ[1:]
    assert "the subtasks of episode 0 are invalid" in str(source.issues[0])


@pytest.mark.parametrize("names", [{"subtask": ["lift", "reach"]}, {"__index_level_0__": ["lift", "reach"]}])
def test_a_subtask_index_is_read_with_its_list(dataset: Path, names: dict[str, list[str]]) -> None:
    pq.write_table(pa.table({"subtask_index": [0, 1], **names}), dataset / "meta/subtasks.parquet")
    add_frames(dataset, "subtask_index", "int64", [1, 1, 1, 0, 0, 0, 0, 0, -1, 1, 1, 1, 1, -1])
    assert [meta.subtasks for meta in open_dataset(dataset).meta] == READ


def test_a_subtask_index_without_names_is_reported(dataset: Path) -> None:
    add_frames(dataset, "subtask_index", "int64", [0] * sum(LENGTHS))
    source = open_dataset(dataset)
    assert [meta.subtasks for meta in source.meta] == [(), ()] and len(source.meta) == 2
    assert "has subtask_index, and no names of it" in str(source.issues[0])


def write_tasks(path: Path, tasks: list[str]) -> None:
    pq.write_table(pa.table({"task_index": list(range(len(tasks))), "task": tasks}), path / "meta/tasks.parquet")
    info = json.loads((path / "meta/info.json").read_text()) | {"total_tasks": len(tasks)}
    (path / "meta/info.json").write_text(json.dumps(info))


def test_tasks_that_follow_each_other_are_subgoals(dataset: Path) -> None:
    write_tasks(dataset, ["open the drawer", "lift the cube"])
    edit_table(dataset / DATA, task_index=[1, 1, 1, 0, 0, 0, 0, 0] + [0] * 6)
    edit_table(dataset / EPISODES, tasks=[["open the drawer", "lift the cube"], ["lift the cube", "open the drawer"]])
    instructions = [meta.instruction for meta in open_dataset(dataset).meta]
    assert instructions == ["lift the cube; then open the drawer", "open the drawer"]


def test_a_task_index_precedes_the_list_of_an_episode(dataset: Path) -> None:
    """Some converters list the first task for all episodes, and the frames know better."""
    write_tasks(dataset, ["open the drawer", "lift the cube"])
    edit_table(dataset / DATA, task_index=[1] * 8 + [0] * 6)
    edit_table(dataset / EPISODES, tasks=[["open the drawer"], ["open the drawer"]])
    assert [meta.instruction for meta in open_dataset(dataset).meta] == ["lift the cube", "open the drawer"]


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("columns", [["frame_index"], ["index"], ["timestamp"], ["frame_index", "index", "timestamp"]])
def test_columns_that_follow_from_the_order_of_the_rows_may_be_missing(
    dataset: Path, columns: list[str], declared: bool
) -> None:
    """As in datasets of GR00T."""
    edit_table(dataset / DATA, drop=columns)
    if not declared:
        edit_info(dataset, dict.fromkeys(columns))
    source = open_dataset(dataset)
    assert source.issues == () and [meta.dataset_from_index for meta in source.meta] == [0, LENGTHS[0]]
    assert len(source.episode(1).state) == LENGTHS[1]


def test_they_may_be_missing_in_version_2_1(tmp_path: Path) -> None:
    path = write_v21_dataset(tmp_path / "old", [make_episode(number, length) for number, length in enumerate(LENGTHS)])
    for file in (path / "data").rglob("*.parquet"):
        edit_table(file, drop=["frame_index", "index"])
    source = open_dataset(path)
    assert source.issues == () and [meta.dataset_from_index for meta in source.meta] == [0, LENGTHS[0]]


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_a_video_feature_without_files_is_left_out_and_reported(dataset: Path, tmp_path: Path, version: str) -> None:
    episodes = [make_episode(number, length) for number, length in enumerate(LENGTHS)]
    path = dataset if version == "v3.0" else write_v21_dataset(tmp_path / "old", episodes)
    feature = json.loads((path / "meta/info.json").read_text())["features"]["observation.images.front"]
    edit_info(path, {"observation.images.ego": feature})
    source = open_dataset(path)
    assert source.views == ("front", "wrist") and len(source.meta) == 2
    assert [issue.message for issue in source.issues] == ["lists observation.images.ego, which has no videos: left out"]


@pytest.mark.parametrize("views", [("observation.images.top", "images.top", "observation.top", "top"), ("top.left",)])
def test_views_keep_their_names_and_their_number(tmp_path: Path, views: tuple[str, ...]) -> None:
    episode = make_episode(0, 4)
    frames = next(iter(episode.views.values()))
    with DatasetWriter(tmp_path / "views") as writer:
        writer.add(replace(episode, views=dict.fromkeys(views, frames)))
    assert set(open_dataset(tmp_path / "views").views) == set(views)


def test_features_of_one_view_name_are_two_views(dataset: Path) -> None:
    info = json.loads((dataset / "meta/info.json").read_text())
    edit_info(dataset, {"observation.front": info["features"]["observation.images.front"]})
    shutil.copytree(dataset / "videos" / "observation.images.front", dataset / "videos" / "observation.front")
    edit_table(dataset / EPISODES, **video_columns(dataset))
    assert set(open_dataset(dataset).views) == {"front", "wrist", "observation.front"}


def video_columns(dataset: Path) -> dict[str, Any]:
    """The columns of the front view, for another feature."""
    table = pq.read_table(dataset / EPISODES)
    prefix = "videos/observation.images.front/"
    names = [name for name in table.column_names if name.startswith(prefix)]
    return {name.replace("observation.images.front", "observation.front"): table[name].to_pylist() for name in names}
