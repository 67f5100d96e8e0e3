"""Datasets of LeRobot as other programs write them, and edits of their tables and features."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from lerobot_v21 import write_v21_dataset
from painted_frames import make_episode

from embodied_rm.data.lerobot.write import DatasetWriter

LENGTHS = (8, 6)
DATA, EPISODES = "data/chunk-000/file-000.parquet", "meta/episodes/chunk-000/file-000.parquet"


def write_v30(path: Path) -> Path:
    """Write a dataset of version 3.0 without the columns of this package."""
    with DatasetWriter(path) as writer:
        for number, length in enumerate(LENGTHS):
            writer.add(make_episode(number, length))
    names = pq.read_schema(path / EPISODES).names
    edit_table(path / EPISODES, drop=[name for name in names if name in ("success", "name") or "subtask" in name])
    edit_table(path / DATA, drop=["subtask_index", "progress"])
    edit_info(path, {"subtask_index": None, "progress": None})
    return path


def write_v21(path: Path, records: list[dict[str, Any]]) -> Path:
    """Write a dataset of version 2.1 with further keys of its episodes."""
    write_v21_dataset(path, [make_episode(number, length) for number, length in enumerate(LENGTHS)])
    lines = [json.loads(line) for line in (path / "meta/episodes.jsonl").read_text().splitlines()]
    lines = [line | record for line, record in zip(lines, records, strict=True)]
    (path / "meta/episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
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


def set_version(path: Path, version: Any) -> None:
    info = json.loads((path / "meta/info.json").read_text()) | {"codebase_version": version}
    (path / "meta/info.json").write_text(json.dumps(info))


def add_frames(path: Path, name: str, dtype: str, values: list[Any]) -> None:
    edit_table(path / DATA, **{name: values})
    edit_info(path, {name: {"dtype": dtype, "shape": [1], "names": None}})
