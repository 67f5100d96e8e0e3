"""Annotations in the frames of LeRobot datasets of others: tasks that follow each other, subtasks and success."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from embodied_rm.data.issues import DataIssue
from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.lerobot.check import EpisodeRows
from embodied_rm.data.lerobot.episode_index import EpisodeIndexRow
from embodied_rm.data.lerobot.parquet import read_parquet
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.types import SUBGOAL_SEPARATOR, Subtask, equal_runs

TASK_KEY = "task_index"
SUCCESS_COLUMNS = ("next.success", "success", "is_success")
"""Columns of success per frame: LeRobot's, and those of recorders of others."""
SUBTASK_LISTS = ("subtasks.parquet", "subtasks.jsonl")
TASK_LISTS = ("tasks.parquet", "tasks.jsonl")
"""Lists of names in `meta`, of version 3.0 and 2.1."""


class FrameColumns(NamedTuple):
    """Columns of a dataset that annotate its frames, and the names that they refer to."""

    success: str | None  # column of success
    subtasks: Mapping[int, str]  # subtask_index -> name; empty: there are none, or they are those of this package

    @property
    def names(self) -> list[str]:
        """The columns to read."""
        success = [] if self.success is None else [self.success]
        return [*success, fmt.SUBTASK_KEY] if self.subtasks else success


def add_frame_annotations(
    root: Path, features: Mapping[str, Any], rows: Sequence[EpisodeIndexRow], episode_rows: Mapping[int, EpisodeRows]
) -> tuple[list[EpisodeIndexRow], list[DataIssue]]:
    """Return the rows with what their frames say, and issues of annotations that are not understood.

    Args:
        root: Folder of the dataset.
        features: Features of `info.json`.
        rows: Episodes without issues.
        episode_rows: Episode index -> its rows.
    """
    task_names = read_names(root, TASK_LISTS, "task", TASK_KEY)
    columns = FrameColumns(
        success=next((name for name in SUCCESS_COLUMNS if name in features), None),
        subtasks=read_names(root, SUBTASK_LISTS, "subtask", fmt.SUBTASK_KEY) if fmt.SUBTASK_KEY in features else {},
    )
    annotated: dict[int, EpisodeIndexRow] = {}
    for path, group in groupby(sorted(rows, key=lambda row: row.data_path), key=lambda row: row.data_path):
        table = read_parquet(path, columns.names) if columns.names else None
        for row in group:
            file_row, _, tasks = episode_rows[row.index]
            instructions = [task_names[task] for task in tasks if task in task_names] or [row.meta.instruction]
            meta = replace(row.meta, instruction=SUBGOAL_SEPARATOR.join(instructions))
            if table is not None:
                meta = annotate(meta, table.slice(file_row, meta.length), columns)
            annotated[row.index] = replace(row, meta=meta)
    return [annotated[row.index] for row in rows], list(find_unread(root, features, rows, columns))


def annotate(meta: EpisodeMeta, frames: pa.Table, columns: FrameColumns) -> EpisodeMeta:
    """Return the metadata of an episode with the annotations of its frames; what it states itself stays."""
    success, subtasks = meta.success, meta.subtasks
    if success is None and columns.success is not None:
        success = final_success(frames[columns.success])
    if not subtasks and columns.subtasks:
        runs = equal_runs(frames[fmt.SUBTASK_KEY].to_numpy())
        named = [(columns.subtasks[index], start, end) for index, start, end in runs if index in columns.subtasks]
        subtasks = tuple(Subtask(name=name, start=start, end=end) for name, start, end in named)
    return replace(meta, success=success, subtasks=subtasks)


def final_success(column: pa.ChunkedArray) -> bool | None:
    """Return whether the last frame is a success; None if an earlier one is, and the last is not."""
    flags = np.array([value in (True, 1) for value in pa_values(column)])
    return True if flags[-1] else (None if flags.any() else False)


def pa_values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column of numbers, flags, or lists of one."""
    return [value[0] if isinstance(value, list) and len(value) == 1 else value for value in column.to_pylist()]


def read_names(root: Path, files: Sequence[str], name_key: str, index_key: str) -> dict[int, str]:
    """Return index -> name of a list in `meta`; empty if it is missing or has another layout.

    A parquet file has the names in a column of that name, or in the unnamed index of pandas.
    """
    path = next((root / "meta" / name for name in files if (root / "meta" / name).is_file()), None)
    if path is None:
        return {}
    if path.suffix == ".jsonl":
        try:
            records = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
        except ValueError:
            return {}
    else:
        records = read_parquet(path).to_pylist()
    names = {}
    for record in records:
        name = record.get(name_key, record.get("__index_level_0__")) if isinstance(record, dict) else None
        if isinstance(name, str) and isinstance(record.get(index_key), int):
            names[record[index_key]] = name
    return names


def find_unread(
    root: Path, features: Mapping[str, Any], rows: Sequence[EpisodeIndexRow], columns: FrameColumns
) -> Iterator[DataIssue]:
    """Yield an issue per annotation that is there and not read; it excludes no episode."""
    has_subtasks = any(row.meta.subtasks for row in rows)
    if fmt.SUBTASK_KEY in features and not columns.subtasks and not has_subtasks and fmt.PROGRESS_KEY not in features:
        message = f"has {fmt.SUBTASK_KEY}, and no names of it (meta/{' or meta/'.join(SUBTASK_LISTS)}): not read"
        yield DataIssue(file=root / fmt.INFO_PATH, message=message, episodes=())
