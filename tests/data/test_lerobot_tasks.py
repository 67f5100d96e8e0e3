"""Tasks of the frames of LeRobot datasets become instructions; blank ones are left out by name."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lerobot_edits import DATA, EPISODES, edit_table, write_v30

from embodied_rm.api.in_context import open_videos
from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.errors import DataError


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return write_v30(tmp_path / "data")


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


def set_tasks(path: Path, names: list[str], indices: list[int], listed: list[list[str]]) -> None:
    write_tasks(path, names)
    edit_table(path / DATA, task_index=indices)
    edit_table(path / EPISODES, tasks=listed)


@pytest.mark.parametrize("blank", ["", "  ", "\n"])
def test_a_blank_task_is_left_out_of_the_instruction_and_reported(dataset: Path, blank: str) -> None:
    indices = [0, 0, 0, 1, 1, 0, 0, 0] + [1] + [0] * 5
    set_tasks(dataset, ["lift the cube", blank], indices, [["lift the cube", blank], [blank, "lift the cube"]])
    source = open_dataset(dataset)
    assert [meta.instruction for meta in source.meta] == ["lift the cube"] * 2
    messages = [issue.message for issue in source.issues]
    assert messages == ["frames of episode_000000 have a blank task: left out of its instruction"]


def test_an_episode_whose_tasks_are_blank_needs_an_instruction(dataset: Path) -> None:
    set_tasks(dataset, ["", "lift the cube"], [1] * 8 + [0] * 6, [["lift the cube"], [""]])
    source = open_dataset(dataset)
    (issue,) = source.issues
    assert issue.message == "episode_000001 has no instruction, its tasks are blank; set instruction="
    assert issue.episodes == ("episode_000001",) and [meta.name for meta in source.meta] == ["episode_000000"]
    filled = open_dataset(dataset, "push the cube")
    assert [meta.instruction for meta in filled.meta] == ["lift the cube", "push the cube"] and filled.issues == ()


def test_a_dataset_of_blank_tasks_is_read_for_models_without_instructions(dataset: Path) -> None:
    """Many recordings have none."""
    set_tasks(dataset, [""], [0] * 14, [[""], [""]])
    with pytest.raises(DataError, match="episode_000000 has no instruction, its tasks are blank; set instruction="):
        open_dataset(dataset)
    assert len(open_dataset(dataset, "lift the cube").meta) == len(open_videos(dataset, None, FeatureMap()).meta) == 2


def test_of_several_datasets_those_of_blank_tasks_need_an_instruction(dataset: Path) -> None:
    write_v30(dataset.parent / "other")
    set_tasks(dataset, [""], [0] * 14, [[""], [""]])
    instructions = [meta.instruction for meta in open_dataset(dataset.parent, "lift the cube").meta]
    assert instructions == ["lift the cube", "lift the cube", "do thing 0", "do thing 1"]
    assert len(open_videos(dataset.parent, None, FeatureMap()).meta) == 4


def test_an_instruction_beside_those_of_the_dataset_is_refused(dataset: Path) -> None:
    for path in (dataset, dataset.parent):
        with pytest.raises(DataError, match="the dataset has its own instructions; got 'push' as well"):
            open_dataset(path, "push")


def test_a_missing_task_of_a_list_is_no_instruction(dataset: Path) -> None:
    set_tasks(dataset, ["", "lift"], [0] * 14, [[None, "lift"], ["lift", None]])
    assert [meta.instruction for meta in open_dataset(dataset).meta] == ["lift", "lift"]


def test_tasks_that_differ_by_white_space_are_one(dataset: Path) -> None:
    names = ["lift the cube", " lift the  cube\n", "open the drawer"]
    set_tasks(dataset, names, [0, 0, 1, 1, 2, 2, 2, 0] + [1] * 6, [names[:1], names[1:2]])
    expected = ["lift the cube; then open the drawer; then lift the cube", "lift the cube"]
    assert [meta.instruction for meta in open_dataset(dataset).meta] == expected


def test_a_damaged_list_of_tasks_leaves_the_instructions_of_the_episodes(dataset: Path) -> None:
    (dataset / "meta/tasks.parquet").write_bytes(b"PAR1")
    source = open_dataset(dataset)
    assert [meta.instruction for meta in source.meta] == ["do thing 0", "do thing 1"]
    assert "cut short or not parquet" in source.issues[0].message


def test_tasks_that_change_without_a_list_of_names_are_reported(dataset: Path) -> None:
    indices, listed = [0, 0, 0, 1, 1, 1, 1, 1] + [0] * 6, ["lift the cube", "open the drawer"]
    set_tasks(dataset, listed, indices, [listed, listed[:1]])
    names = pa.table({"task_index": [0, 1], "sentence": listed})
    pq.write_table(names, dataset / "meta/tasks.parquet")
    source = open_dataset(dataset)
    assert [meta.instruction for meta in source.meta] == ["lift the cube"] * 2
    (issue,) = source.issues
    assert (
        issue.episodes == () and "has no names of task_index: episode_000000 has its first instruction" in issue.message
    )
