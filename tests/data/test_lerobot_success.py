"""Success of LeRobot datasets is read from the columns of other programs, or is unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lerobot_edits import EPISODES, LENGTHS, add_frames, edit_table, write_v21, write_v30

from embodied_rm.data.open_dataset import open_dataset


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return write_v30(tmp_path / "data")


@pytest.mark.parametrize("name", ["next.success", "success", "is_success"])
@pytest.mark.parametrize("listed", [False, True])
def test_success_per_frame_is_that_of_the_last_frame(dataset: Path, name: str, listed: bool) -> None:
    flags = [False] * 7 + [True] + [False] * 6
    add_frames(dataset, name, "bool", [[flag] for flag in flags] if listed else flags)
    assert [meta.success for meta in open_dataset(dataset).meta] == [True, False]


def test_a_success_that_did_not_last_is_unknown(dataset: Path) -> None:
    add_frames(dataset, "next.success", "int64", [0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1])
    assert [meta.success for meta in open_dataset(dataset).meta] == [None, True]


@pytest.mark.parametrize(
    "name", ["success", "is_success", "episode_success", "next.success", "outcome", "task_success"]
)
@pytest.mark.parametrize(
    "values", [[True, False], [1, 0], ["success", "failure"], [" Success", "FAILED"], ["true", "no"], [[True], [False]]]
)
def test_success_per_episode(dataset: Path, name: str, values: list[Any]) -> None:
    edit_table(dataset / EPISODES, **{name: values})
    source = open_dataset(dataset)
    assert [meta.success for meta in source.meta] == [True, False] and source.issues == ()
    edit_table(dataset / EPISODES, **{name: [None, values[0]]})
    assert [meta.success for meta in open_dataset(dataset).meta] == [None, True]


def test_success_of_an_episode_precedes_that_of_its_frames(dataset: Path) -> None:
    """A person who labels episodes afterwards knows better than a recorder."""
    add_frames(dataset, "next.success", "bool", [False] * 13 + [True])
    edit_table(dataset / EPISODES, outcome=["success", "unknown"])
    assert [meta.success for meta in open_dataset(dataset).meta] == [True, True]


def test_success_per_episode_of_version_2_1(tmp_path: Path) -> None:
    path = write_v21(tmp_path / "old", [{"success": "failure"}, {"is_success": True}])
    assert [meta.success for meta in open_dataset(path).meta] == [False, True]


def test_droids_column_of_success(dataset: Path) -> None:
    add_frames(dataset, "is_episode_successful", "bool", [True] * 8 + [False] * 6)
    assert [meta.success for meta in open_dataset(dataset).meta] == [True, False]


@pytest.mark.parametrize("per_frame", [False, True])
@pytest.mark.parametrize("value", ["good", 0.7])
def test_success_that_is_not_understood_is_reported_once(dataset: Path, per_frame: bool, value: Any) -> None:
    if per_frame:
        add_frames(dataset, "success", "string", [value] * sum(LENGTHS))
    else:
        edit_table(dataset / EPISODES, success=[value, value])
    source = open_dataset(dataset)
    assert [meta.success for meta in source.meta] == [None, None]
    (issue,) = source.issues
    name = "episode_000000" if per_frame else "episode 0"
    expected = "true, false, success, failure or unknown was expected"
    assert issue.message == f"success of {name} is {value!r}; {expected}: not read" and issue.episodes == ()


@pytest.mark.parametrize("name", ["next.reward", "next.done", "reward", "next.truncated"])
def test_rewards_and_ends_say_nothing_about_success(dataset: Path, name: str) -> None:
    add_frames(dataset, name, "float32", [0.0] * 7 + [1.0] + [0.0] * 5 + [1.0])
    assert [meta.success for meta in open_dataset(dataset).meta] == [None, None]


def test_without_such_a_column_success_is_unknown(dataset: Path) -> None:
    assert [meta.success for meta in open_dataset(dataset).meta] == [None, None]


def test_a_column_that_states_nothing_leaves_it_to_the_next(dataset: Path) -> None:
    add_frames(dataset, "success", "string", ["unknown"] * sum(LENGTHS))
    add_frames(dataset, "next.success", "bool", [False] * 7 + [True] + [False] * 6)
    source = open_dataset(dataset)
    assert [meta.success for meta in source.meta] == [True, False] and source.issues == ()


@pytest.mark.parametrize("name", ["observation.success", "complementary_info.is_success", "task_outcome"])
@pytest.mark.parametrize("per_frame", [False, True])
def test_a_success_under_another_name_is_reported(dataset: Path, name: str, per_frame: bool) -> None:
    if per_frame:
        add_frames(dataset, name, "bool", [True] * sum(LENGTHS))
    else:
        edit_table(dataset / EPISODES, **{name: [True, False]})
    (issue,) = open_dataset(dataset).issues
    assert issue.episodes == () and issue.message.startswith(f"has {name}: not read, success, next.success, is_success")
