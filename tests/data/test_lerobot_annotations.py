"""Subtasks that tools of others write into LeRobot datasets are read, or their absence is reported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lerobot_edits import EPISODES, LENGTHS, add_frames, edit_table, write_v21, write_v30
from painted_frames import make_episode

from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.errors import DataError
from embodied_rm.types import Subtask


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return write_v30(tmp_path / "data")


@pytest.mark.parametrize(
    ("dtype", "unknown"), [("bool", None), ("float32", float("nan")), ("string", "unknown"), ("string", "")]
)
def test_a_last_frame_that_states_nothing_is_no_failure(dataset: Path, dtype: str, unknown: Any) -> None:
    yes, no = {"bool": (True, False), "float32": (1.0, 0.0), "string": ("success", "Failure")}[dtype]
    add_frames(dataset, "next.success", dtype, [unknown] * 7 + [yes] + [no] * 5 + [unknown])
    assert [meta.success for meta in open_dataset(dataset).meta] == [True, None]
    add_frames(dataset, "next.success", dtype, [unknown] * 8 + [unknown] * 5 + [no])
    source = open_dataset(dataset)
    assert [meta.success for meta in source.meta] == [None, False] and source.issues == ()


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


@pytest.mark.parametrize("prefix", ["", "sparse_", "dense_"])
def test_a_dataset_of_this_package_may_be_annotated_by_them(tmp_path: Path, prefix: str) -> None:
    """Without a prefix they replace the columns of this package, and add times."""
    with DatasetWriter(tmp_path / "own") as writer:
        for number, length in enumerate(LENGTHS):
            writer.add(replace(make_episode(number, length), subtasks=()))
    times = {} if prefix else {"subtask_start_times": [[0.0, 0.3], [0.1]], "subtask_end_times": [[0.3, 0.7], [0.4]]}
    edit_table(tmp_path / "own" / EPISODES, **sarm_columns(prefix), **times)
    assert [meta.subtasks for meta in open_dataset(tmp_path / "own").meta] == READ


def test_columns_of_a_name_and_a_success_do_not_change_how_they_are_read(dataset: Path) -> None:
    edit_table(dataset / EPISODES, **sarm_columns("dense_"), name=["first", "second"], success=[True, False])
    assert [meta.subtasks for meta in open_dataset(dataset).meta] == READ


def test_they_are_read_from_version_2_1_too(tmp_path: Path) -> None:
    columns = sarm_columns("sparse_")
    records = [{key: values[number] for key, values in columns.items()} for number in range(2)]
    assert [meta.subtasks for meta in open_dataset(write_v21(tmp_path / "old", records)).meta] == READ


@pytest.mark.parametrize("prefix", ["", "sparse_", "dense_"])
@pytest.mark.parametrize("column_type", [pa.list_(pa.float64()), pa.list_(pa.float32())])
def test_subtasks_in_seconds_are_those_of_the_nearest_frames(
    dataset: Path, prefix: str, column_type: pa.DataType
) -> None:
    columns = {
        f"{prefix}subtask_names": [["reach", "lift"], ["reach"]],
        f"{prefix}subtask_start_times": pa.array([[0.0, 0.29], [0.1]], column_type),
        f"{prefix}subtask_end_times": pa.array([[0.3, 0.8], [0.4]], column_type),
    }
    edit_table(dataset / EPISODES, **columns)
    source = open_dataset(dataset)
    assert [meta.subtasks for meta in source.meta] == READ and source.issues == ()


def test_frames_precede_seconds(dataset: Path) -> None:
    seconds = {"subtask_start_times": [[0, 0], [0]], "subtask_end_times": [[0, 1], [1]]}
    edit_table(dataset / EPISODES, **sarm_columns(""), **seconds)
    assert [meta.subtasks for meta in open_dataset(dataset).meta] == READ


def test_entries_may_be_lists_of_one_and_frames_may_be_floats(dataset: Path) -> None:
    """As pandas and JSON exports of annotation tools have them."""
    columns = {
        "subtask_names": [[["reach"], ["lift"]], [["reach"]]],
        "subtask_start_frames": [[[0], [3]], [[1]]],
        "subtask_end_frames": [[3.0, 7.0], [4.0]],
    }
    edit_table(dataset / EPISODES, **columns)
    source = open_dataset(dataset)
    assert [meta.subtasks for meta in source.meta] == READ
    assert all(type(subtask.end) is int for meta in source.meta for subtask in meta.subtasks)


def test_a_subtask_without_a_frame_of_its_own_is_left_out(dataset: Path) -> None:
    """Times in whole seconds place two subtasks at one frame."""
    columns = {
        "subtask_names": [["look", "reach", "lift"], ["reach"]],
        "subtask_start_frames": [[0, 0, 3], [1]],
        "subtask_end_frames": [[0, 3, 7], [4]],
    }
    edit_table(dataset / EPISODES, **columns)
    assert [meta.subtasks for meta in open_dataset(dataset).meta] == READ


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("subtask_start_frames", [[0, 2.5], [1.0]], "a frame is 2.5"),
        ("subtask_start_frames", [[0, float("nan")], [1.0]], "a frame is nan"),
        ("subtask_end_frames", [[3.0, float("inf")], [4.0]], "a frame is inf"),
        ("subtask_names", [["reach", " "], ["reach"]], "a subtask is named ' '"),
    ],
)
def test_values_that_are_no_subtasks_are_reported(dataset: Path, column: str, values: Any, message: str) -> None:
    edit_table(dataset / EPISODES, **{**sarm_columns(""), column: values})
    source = open_dataset(dataset)
    assert [meta.subtasks for meta in source.meta] == READ[1:]
    assert source.issues[0].message == f"the subtasks of episode 0 are invalid ({message})"


def test_names_that_are_no_list_are_reported(dataset: Path) -> None:
    edit_table(dataset / EPISODES, **{**sarm_columns(""), "subtask_names": [None, "reach"]})
    with pytest.raises(DataError, match=r"subtask_names is missing.*subtask_names is 'reach', a list was expected"):
        open_dataset(dataset)


UNREAD = {
    "names alone": ({"subtask_names": [["reach"], ["reach"]]}, "has subtask_names: not read"),
    "starts alone": (
        {"dense_subtask_names": [["reach"], ["lift"]], "dense_subtask_start_frames_v2": [[0], [0]]},
        "has dense_subtask_names, dense_subtask_start_frames_v2: not read",
    ),
    "another layout": ({"subtasks": ["reach: 0-3", "lift: 0-3"]}, "has subtasks: not read"),
}


@pytest.mark.parametrize("kind", UNREAD)
@pytest.mark.parametrize("version", ["v3.0", "v2.1"])
def test_annotation_of_episodes_that_is_not_understood_is_reported_once(
    dataset: Path, tmp_path: Path, kind: str, version: str
) -> None:
    columns, message = UNREAD[kind]
    if version == "v2.1":
        dataset = write_v21(tmp_path / "old", [{key: values[i] for key, values in columns.items()} for i in range(2)])
    else:
        edit_table(dataset / EPISODES, **columns)
    source = open_dataset(dataset)
    assert [meta.subtasks for meta in source.meta] == [(), ()]
    (issue,) = source.issues
    expected = "subtask_start_frames and subtask_end_frames and subtask_names were expected"
    assert issue.message == f"{message}, {expected}" and issue.episodes == ()


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


def test_a_subtask_index_may_be_a_list_of_one_or_missing_in_frames(dataset: Path) -> None:
    pq.write_table(pa.table({"subtask_index": [0, 1], "subtask": ["lift", "reach"]}), dataset / "meta/subtasks.parquet")
    indices = [1, 1, 1, 0, 0, 0, 0, 0, None, 1, 1, 1, 1, None]
    for values in (indices, [None if index is None else [index] for index in indices]):
        add_frames(dataset, "subtask_index", "int64", values)
        source = open_dataset(dataset)
        assert [meta.subtasks for meta in source.meta] == READ and source.issues == ()


def test_a_subtask_index_may_be_a_float_that_is_missing_in_frames(dataset: Path) -> None:
    """pandas stores it so."""
    pq.write_table(pa.table({"subtask_index": [0, 1], "subtask": ["lift", "reach"]}), dataset / "meta/subtasks.parquet")
    none = float("nan")
    add_frames(dataset, "subtask_index", "float64", [1.0] * 3 + [0.0] * 5 + [none] + [1.0] * 4 + [none])
    source = open_dataset(dataset)
    assert [meta.subtasks for meta in source.meta] == READ and source.issues == ()


def test_a_fraction_of_a_subtask_is_reported(dataset: Path) -> None:
    pq.write_table(pa.table({"subtask_index": [0, 1], "subtask": ["lift", "reach"]}), dataset / "meta/subtasks.parquet")
    add_frames(dataset, "subtask_index", "float64", [0.5] * 8 + [1.0] * 6)
    source = open_dataset(dataset)
    assert [len(meta.subtasks) for meta in source.meta] == [0, 1]
    assert [issue.message for issue in source.issues] == ["subtask_index of episode_000000 is 0.5: not read"]


def test_a_subtask_without_a_name_is_reported(dataset: Path) -> None:
    pq.write_table(pa.table({"subtask_index": [1], "subtask": ["reach"]}), dataset / "meta/subtasks.parquet")
    add_frames(dataset, "subtask_index", "int64", [1, 1, 1, 4, 4, 4, 4, 4, -1, 1, 1, 1, 1, -1])
    source = open_dataset(dataset)
    assert [meta.subtasks for meta in source.meta] == [READ[0][:1], READ[1]]
    assert [issue.message for issue in source.issues] == ["subtask_index 4 of episode_000000 has no name: not read"]


def test_a_subtask_index_of_text_is_reported(dataset: Path) -> None:
    add_frames(dataset, "subtask_index", "string", ["reach"] * sum(LENGTHS))
    messages = [issue.message for issue in open_dataset(dataset).issues]
    assert messages == ["subtask_index holds string, numbers were expected: not read"]


@pytest.mark.parametrize("progress", [None, "stored"])
@pytest.mark.parametrize("annotated", [False, True])
def test_a_dataset_of_this_package_needs_no_report(tmp_path: Path, progress: str | None, annotated: bool) -> None:
    """`subtask_index` is -1 everywhere in a dataset without subtasks."""
    with DatasetWriter(tmp_path / "own") as writer:
        for number, length in enumerate(LENGTHS):
            episode = make_episode(number, length)
            episode = episode if progress else replace(episode, progress=None)
            writer.add(episode if annotated else replace(episode, subtasks=(), success=None))
    source = open_dataset(tmp_path / "own")
    assert source.issues == () and bool(source.meta[0].subtasks) == annotated


def test_a_subtask_index_without_names_is_reported(dataset: Path) -> None:
    add_frames(dataset, "subtask_index", "int64", [0] * sum(LENGTHS))
    source = open_dataset(dataset)
    assert [meta.subtasks for meta in source.meta] == [(), ()] and len(source.meta) == 2
    assert "has subtask_index, and no names of it" in str(source.issues[0])


@pytest.mark.parametrize(
    "name",
    [
        "annotation.human.action.task_description",
        "subtask",
        "coarse_subtask_index",
        "sub_task_index",
        "skill_index",
        "phase",
        "observation.stage",
        "coarse_task_index",
    ],
)
def test_annotation_of_frames_that_is_not_understood_is_reported_once(dataset: Path, name: str) -> None:
    add_frames(dataset, name, "int64", [1] * sum(LENGTHS))
    (issue,) = open_dataset(dataset).issues
    assert issue.message == f"has {name}: not read, subtask_index or language_persistent was expected"
    assert issue.episodes == ()
