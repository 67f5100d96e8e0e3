"""AgiBot's segments of LeRobot datasets are read as subtasks; annotations under other names are reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lerobot_edits import DATA, EPISODES, edit_table, write_v21, write_v30

from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.source import EpisodeSource
from embodied_rm.types import Subtask


def segment(start: Any, end: Any, text: Any = "reach") -> dict[str, Any]:
    return {"start_frame": start, "end_frame": end, "action_text": text, "skill": "Pick"}


SEGMENTS = [[segment(0, 3), segment(3, 8, "lift ")], None]
READ = [(Subtask(name="reach", start=0, end=3), Subtask(name="lift", start=3, end=8)), ()]


def open_with(folder: Path, version: str, **columns: list[Any]) -> EpisodeSource:
    """Open a dataset of two episodes with further columns of episodes."""
    if version == "v2.1":
        records = [{key: values[number] for key, values in columns.items()} for number in range(2)]
        return open_dataset(write_v21(folder / "old", records))
    edit_table(write_v30(folder / "new") / EPISODES, **columns)
    return open_dataset(folder / "new")


VERSIONS = pytest.mark.parametrize("version", ["v3.0", "v2.1"])


@VERSIONS
def test_agibots_segments_are_subtasks(version: str, tmp_path: Path) -> None:
    source = open_with(tmp_path, version, action_config=SEGMENTS)
    assert [meta.subtasks for meta in source.meta] == READ and source.issues == ()


@VERSIONS
def test_subtasks_of_lerobots_tools_precede_them(version: str, tmp_path: Path) -> None:
    sarm = {"subtask_names": [["all"], None], "subtask_start_frames": [[0], None], "subtask_end_frames": [[7], None]}
    source = open_with(tmp_path, version, action_config=SEGMENTS, **sarm)
    assert [meta.subtasks for meta in source.meta] == [(Subtask(name="all", start=0, end=8),), ()]


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ([segment(0, 2.5)], "a frame is 2.5"),
        ([segment(0, None)], "a frame is None"),
        ([segment(0, 9)], "ends at frame 9, the videos have 8"),
        ([segment(0, 3), segment(2, 8, "lift")], "'lift' starts at 2, before 'reach' ends"),
        ([segment(0, 3, " ")], "an action_text, start_frame and end_frame were expected"),
        (["reach"], "action_config has 'reach', an action_text"),
        ("reach", "action_config is 'reach', a list was expected"),
    ],
)
def test_segments_that_do_not_fit_exclude_their_episode(segments: Any, message: str, tmp_path: Path) -> None:
    source = open_with(tmp_path, "v2.1", action_config=[segments, [segment(0, 3)]])
    assert [meta.subtasks for meta in source.meta] == [(Subtask(name="reach", start=0, end=3),)]
    (issue,) = source.issues
    assert issue.episodes == ("episode_000000",) and message in issue.message


@VERSIONS
@pytest.mark.parametrize("name", ["skill_names", "segments", "sub_tasks", "stage_names", "phases", "fine_task_index"])
def test_subtasks_under_another_name_are_reported(name: str, version: str, tmp_path: Path) -> None:
    (issue,) = open_with(tmp_path, version, **{name: [["reach"], ["lift"]]}).issues
    assert issue.message.startswith(f"has {name}: not read, subtask_start_frames and ") and issue.episodes == ()


@VERSIONS
@pytest.mark.parametrize("name", ["operator", "tasks_done", "length_s", "backstage", "phase_shift", "stats/phase"])
def test_other_columns_are_not(name: str, version: str, tmp_path: Path) -> None:
    assert open_with(tmp_path, version, **{name: ["a", "b"]}).issues == ()


@VERSIONS
@pytest.mark.parametrize(
    ("column", "content", "name"),
    [
        ("metadata", {"success": False}, "metadata/success"),
        ("info", {"result": {"is_success": True}}, "info/result/is_success"),
    ],
)
def test_a_success_inside_of_another_column_is_reported(
    column: str, content: Any, name: str, version: str, tmp_path: Path
) -> None:
    source = open_with(tmp_path, version, **{column: [content, content]})
    (issue,) = source.issues
    assert issue.message.startswith(f"has {name}: not read, success, next.success, is_success")
    assert [meta.success for meta in source.meta] == [None, None]


def test_annotations_inside_of_a_column_of_frames_are_reported(tmp_path: Path) -> None:
    path = write_v30(tmp_path / "data")
    edit_table(path / DATA, info=[{"is_success": True, "phase": 1}] * 14)
    assert [issue.message.split(":")[0] for issue in open_dataset(path).issues] == [
        "has info/phase",
        "has info/is_success",
    ]
