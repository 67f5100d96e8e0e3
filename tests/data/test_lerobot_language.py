"""Rows of language in LeRobot's column `language_persistent` are subtasks from their time until the next one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lerobot_edits import DATA, EPISODES, LENGTHS, edit_info, edit_table, set_version, write_v30

from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.types import Subtask

ROW_TYPE = pa.struct({
    "role": pa.string(), "content": pa.string(), "style": pa.string(), "timestamp": pa.float32(),
    "camera": pa.string(), "tool_calls": pa.list_(pa.string()),
})  # fmt: skip
COLUMNS = ("language_persistent", "language_events")


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    path = write_v30(tmp_path / "data")
    edit_info(path, {name: {"dtype": "language", "shape": [1], "names": None} for name in COLUMNS})
    return path


def row(content: str | None, timestamp: float, style: str = "subtask", role: str = "assistant") -> dict[str, Any]:
    return {"role": role, "content": content, "style": style, "timestamp": timestamp}


def write_language(path: Path, persistent: list[Any], row_type: pa.DataType = ROW_TYPE) -> None:
    """Write the rows of language of every frame, and events, which are no subtasks."""
    event = [{"role": "user", "content": "stop", "style": "interjection"}]
    events = [event if frame == 4 else [] for length in LENGTHS for frame in range(length)]
    edit_table(
        path / DATA, language_persistent=pa.array(persistent, pa.list_(row_type)), language_events=pa.array(events)
    )


def repeat(*episodes: list[dict[str, Any]] | None) -> list[Any]:
    return [rows for rows, length in zip(episodes, LENGTHS, strict=True) for _ in range(length)]


FIRST = [
    row("put the cube away", 0.0, "task_aug", "user"),
    row("1. reach 2. lift", 0.0, "plan"),
    row("reach", 0.0),
    row("lift", 0.3),
    row("the cube is held", 0.5, "memory"),
]
SECOND = [row("reach", 0.1), row(None, 0.5)]
READ = [
    (Subtask(name="reach", start=0, end=3), Subtask(name="lift", start=3, end=8)),
    (Subtask(name="reach", start=1, end=5),),
]


@pytest.mark.parametrize("version", ["v3.0", "v3.1"])
def test_rows_of_style_subtask_are_read(dataset: Path, version: str) -> None:
    set_version(dataset, version)
    write_language(dataset, repeat(FIRST, SECOND))
    source = open_dataset(dataset)
    assert [meta.subtasks for meta in source.meta] == READ and source.issues == ()
    assert [meta.instruction for meta in source.meta] == ["do thing 0", "do thing 1"]


def test_rows_are_read_in_the_order_of_their_times(dataset: Path) -> None:
    write_language(dataset, repeat(FIRST[::-1], SECOND[::-1]))
    assert [meta.subtasks for meta in open_dataset(dataset).meta] == READ


def test_frames_may_have_the_rows_so_far(dataset: Path) -> None:
    frames = [
        [entry for entry in rows if entry["timestamp"] <= frame / 10 + 1e-6]
        for rows, length in zip((FIRST, SECOND), LENGTHS, strict=True)
        for frame in range(length)
    ]
    write_language(dataset, frames)
    assert [meta.subtasks for meta in open_dataset(dataset).meta] == READ


def test_of_rows_at_one_time_the_last_one_counts(dataset: Path) -> None:
    """Some converters write the whole task as the first subtask."""
    write_language(dataset, repeat([row("put the cube away", 0.0), *FIRST], SECOND))
    assert [meta.subtasks for meta in open_dataset(dataset).meta] == READ


@pytest.mark.parametrize("rate", [1.0, 1.08])
@pytest.mark.parametrize("start", [0.0, 1.7e9])
def test_times_are_those_of_the_clock_of_the_rows(dataset: Path, start: float, rate: float) -> None:
    clock = np.concatenate([start + rate * np.arange(length) / 10 for length in LENGTHS])
    edit_table(dataset / DATA, timestamp=clock)
    rows = [[{**entry, "timestamp": start + rate * entry["timestamp"]} for entry in rows] for rows in (FIRST, SECOND)]
    double = pa.struct([field.with_type(pa.float64()) if field.name == "timestamp" else field for field in ROW_TYPE])
    write_language(dataset, repeat(*rows), double)
    assert [meta.subtasks for meta in open_dataset(dataset).meta] == READ


def test_episodes_without_rows_have_no_subtasks(dataset: Path) -> None:
    write_language(dataset, repeat([], None))
    source = open_dataset(dataset)
    assert [meta.subtasks for meta in source.meta] == [(), ()] and source.issues == ()


def test_columns_that_info_json_does_not_list_are_read_and_listed_ones_may_be_missing(dataset: Path) -> None:
    assert open_dataset(dataset).issues == ()
    edit_info(dataset, dict.fromkeys(COLUMNS))
    write_language(dataset, repeat(FIRST, SECOND))
    assert [meta.subtasks for meta in open_dataset(dataset).meta] == READ


def test_other_subtasks_precede(dataset: Path) -> None:
    columns = {"subtask_names": [["all"], None], "subtask_start_frames": [[0], None], "subtask_end_frames": [[7], None]}
    edit_table(dataset / EPISODES, **columns)
    write_language(dataset, repeat(FIRST, SECOND))
    assert [meta.subtasks for meta in open_dataset(dataset).meta] == [(Subtask(name="all", start=0, end=8),), READ[1]]


def test_language_without_subtasks_is_reported_once(dataset: Path) -> None:
    write_language(dataset, repeat(FIRST[:2], FIRST[:2]))
    source = open_dataset(dataset)
    assert [meta.subtasks for meta in source.meta] == [(), ()]
    messages = [issue.message for issue in source.issues]
    assert messages == ["language_persistent of episode_000000 has no row of style subtask: not read"]


@pytest.mark.parametrize("cells", [["reach"], [{"text": "reach"}]])
def test_another_layout_is_reported_once(dataset: Path, cells: list[Any]) -> None:
    edit_table(dataset / DATA, language_persistent=pa.array([cells] * sum(LENGTHS)))
    source = open_dataset(dataset)
    assert [meta.subtasks for meta in source.meta] == [(), ()] and len(source.issues) == 1
    assert f"{cells[0]!r} is no row with style, content and timestamp: not read" in source.issues[0].message


def test_rows_without_a_time_are_reported(dataset: Path) -> None:
    write_language(dataset, repeat([row("reach", 0.0), {**row("lift", 0), "timestamp": None}], SECOND))
    source = open_dataset(dataset)
    assert [meta.subtasks for meta in source.meta] == [(), READ[1]] and "not read" in source.issues[0].message


def test_a_text_is_no_list_of_rows(dataset: Path) -> None:
    edit_table(dataset / DATA, language_persistent=["reach"] * sum(LENGTHS))
    assert pq.read_schema(dataset / DATA).field("language_persistent").type == pa.string()
    (issue,) = open_dataset(dataset).issues
    assert issue.message == "language_persistent of episode_000000: 'reach' is no list of rows: not read"
