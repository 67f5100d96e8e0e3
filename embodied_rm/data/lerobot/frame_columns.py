"""Annotations in the frames of LeRobot datasets of others: tasks that follow each other, subtasks and success."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embodied_rm.data.dataset_files import parse_json, split_json_lines
from embodied_rm.data.issues import DataIssue
from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.lerobot.check import EpisodeRows
from embodied_rm.data.lerobot.episode_index import EpisodeIndexRow
from embodied_rm.data.lerobot.episode_subtasks import seems_subtask
from embodied_rm.data.lerobot.language_columns import PERSISTENT_COLUMN, SUBTASK_STYLE, language_subtasks
from embodied_rm.data.lerobot.parquet import (
    flatten_singletons,
    iterate_names,
    read_cells,
    read_footer,
    read_parquet,
    read_records,
)
from embodied_rm.data.lerobot.success_columns import SUCCESS_COLUMNS, describe_unread_success, last_success
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.data.subgoal_instruction import join_subgoals
from embodied_rm.data.video.decoder import FrameTimes
from embodied_rm.errors import DataError
from embodied_rm.text_file import read_text
from embodied_rm.types import Subtask, equal_runs

SUBTASK_LISTS = ("subtasks.parquet", "subtasks.jsonl")
TASK_LISTS = ("tasks.parquet", "tasks.jsonl")
"""Lists of names in `meta`, of version 3.0 and 2.1."""
GROOT_PREFIX = "annotation."
"""Prefix of the columns of GR00T that annotate frames: `annotation.<source>.<kind>`."""
INDEX_NAME = "__index_level_0__"
"""Column of the unnamed index of pandas, which LeRobot's older versions name tasks in."""


@dataclass(frozen=True, kw_only=True)
class FrameAnnotations:
    """The annotations in the frames of a dataset, and what is not understood of them."""

    root: Path
    fps: float
    task_names: Mapping[int, str]
    """task_index -> name in single spaces, which may be empty."""
    subtask_names: Mapping[int, str]
    """subtask_index -> name. Empty: there are none, or they are those of this package."""
    unread: dict[str, DataIssue] = field(default_factory=dict)
    """Column -> the first issue, which excludes no episode; or the name of an episode that is excluded -> why."""

    @classmethod
    def open(cls, root: Path, fps: float) -> "FrameAnnotations":
        """Read the lists of names."""
        tasks = read_names(root, TASK_LISTS, "task", "task_index")
        subtasks = read_names(root, SUBTASK_LISTS, "subtask", fmt.SUBTASK_KEY)
        return cls(root=root, fps=fps, task_names=tasks, subtask_names=subtasks)

    def annotate(
        self, path: Path, rows: Sequence[EpisodeIndexRow], episode_rows: Mapping[int, EpisodeRows]
    ) -> list[EpisodeIndexRow]:
        """Return the readable episodes of a data file with what their frames say; what one states itself stays."""
        stored = list(iterate_names(read_footer(path).schema.to_arrow_schema()))
        columns = [name for name in (*SUCCESS_COLUMNS, fmt.SUBTASK_KEY) if name in stored]
        if unread := [name for name in stored if seems_annotation(name) and name != fmt.SUBTASK_KEY]:
            expected = f"{fmt.SUBTASK_KEY} or {PERSISTENT_COLUMN} was expected"
            self._report("other columns", f"has {', '.join(unread)}: not read, {expected}")
        if clause := describe_unread_success(stored):
            self._report("other success", clause)
        table = read_parquet(path, columns) if columns else None
        edges = {row.index: (first := episode_rows[row.index].file_row, first + row.meta.length - 1) for row in rows}
        has_language = PERSISTENT_COLUMN in stored
        cells = read_cells(path, PERSISTENT_COLUMN, {*sum(edges.values(), ())}) if has_language else {}
        annotated = []
        for row in rows:
            first, last = edges[row.index]
            frames = None if table is None else table.slice(first, row.meta.length)
            # Some writers repeat only the rows of language so far: the last frame has all of them.
            language = cells.get(last) or cells.get(first)
            try:
                meta = self.annotate_episode(row.meta, episode_rows[row.index], frames, language)
            except ValueError as error:  # of this package, of pyarrow, or a text that is not UTF-8
                issue = DataIssue(file=path, message=f"{row.meta.name}: {error}", episodes=(row.meta.name,))
                self.unread[row.meta.name] = issue
                continue
            annotated.append(replace(row, meta=meta))
        return annotated

    def annotate_episode(
        self, meta: EpisodeMeta, rows: EpisodeRows, frames: pa.Table | None, language: Any
    ) -> EpisodeMeta:
        """Return the metadata of an episode with what its frames and its rows of language say."""
        meta = replace(meta, instruction=self.instruction(meta, rows.tasks))
        if frames is not None:
            meta = replace(meta, success=self.success(meta, frames), subtasks=self.subtasks(meta, frames))
        if language:
            times = np.arange(meta.length) / self.fps if rows.times is None else rows.times
            meta = replace(meta, subtasks=self.language_subtasks(meta, language, times))
        return meta

    def instruction(self, meta: EpisodeMeta, tasks: Sequence[int]) -> str:
        """Return the names of the tasks of an episode that are not blank, as sub-goals; else its own instruction."""
        names = [self.task_names[task] for task in tasks if task in self.task_names]
        if len(set(tasks)) > 1 and not names:
            lists = f"meta/{' or meta/'.join(TASK_LISTS)}"
            self._report(
                "task list", f"{lists} has no names of task_index: {meta.name} has its first instruction alone"
            )
        if any(names) and not all(names):
            message = f"frames of {meta.name} have a blank task: left out of its instruction"
            self._report("task_index", message)
        return join_subgoals(names) or meta.instruction

    def success(self, meta: EpisodeMeta, frames: pa.Table) -> bool | None:
        """Return the success that an episode states, else that of its frames, of the first column that states one."""
        success = meta.success
        for name in SUCCESS_COLUMNS:
            if success is None and name in frames.column_names:
                try:
                    success = last_success(flatten_singletons(frames[name]).to_pylist())
                except ValueError as error:
                    self._report(name, f"{name} of {meta.name} is {error}: not read")
        return success

    def subtasks(self, meta: EpisodeMeta, frames: pa.Table) -> tuple[Subtask, ...]:
        """Return the subtasks that an episode states, else those of its frames."""
        if meta.subtasks or fmt.SUBTASK_KEY not in frames.column_names:
            return meta.subtasks
        column = flatten_singletons(frames[fmt.SUBTASK_KEY])
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            self._report(fmt.SUBTASK_KEY, f"{fmt.SUBTASK_KEY} holds {column.type}, numbers were expected: not read")
            return ()
        numbers = pc.fill_null(column.cast(pa.float64()), np.nan).to_numpy()
        indices = np.where(np.isfinite(numbers), numbers, -1)
        if (fractions := indices[indices != indices.round()]).size:
            self._report(fmt.SUBTASK_KEY, f"{fmt.SUBTASK_KEY} of {meta.name} is {fractions[0]:g}: not read")
            return ()
        runs = equal_runs(indices.astype(np.int64))
        unnamed = [index for index, _, _ in runs if index >= 0 and index not in self.subtask_names]
        if unnamed and not self.subtask_names:
            lists = f"meta/{' or meta/'.join(SUBTASK_LISTS)}"
            self._report(fmt.SUBTASK_KEY, f"has {fmt.SUBTASK_KEY}, and no names of it ({lists}): not read")
        elif unnamed:
            self._report(fmt.SUBTASK_KEY, f"{fmt.SUBTASK_KEY} {unnamed[0]} of {meta.name} has no name: not read")
        named = [(self.subtask_names[index], start, end) for index, start, end in runs if index in self.subtask_names]
        return tuple(Subtask(name=name, start=start, end=end) for name, start, end in named)

    def language_subtasks(self, meta: EpisodeMeta, language: Any, times: FrameTimes) -> tuple[Subtask, ...]:
        """Return the subtasks that an episode states, else those of its rows of language at times of frames (s)."""
        if meta.subtasks:
            return meta.subtasks
        try:
            subtasks = language_subtasks(language, times, self.fps)
        except (ValueError, TypeError) as error:
            self._report(PERSISTENT_COLUMN, f"{PERSISTENT_COLUMN} of {meta.name}: {error}: not read")
            return ()
        if not subtasks:
            message = f"{PERSISTENT_COLUMN} of {meta.name} has no row of style {SUBTASK_STYLE}: not read"
            self._report(PERSISTENT_COLUMN, message)
        return subtasks

    def _report(self, column: str, message: str) -> None:
        self.unread.setdefault(column, DataIssue(file=self.root / fmt.INFO_PATH, message=message, episodes=()))


def add_frame_annotations(
    root: Path, fps: float, rows: Sequence[EpisodeIndexRow], episode_rows: Mapping[int, EpisodeRows]
) -> tuple[list[EpisodeIndexRow], list[DataIssue]]:
    """Return the rows with what their frames say, and the issues: annotations and episodes that are not read.

    Args:
        root: Folder of the dataset.
        fps: Its frame rate.
        rows: Episodes without issues.
        episode_rows: Episode index -> its rows.
    """
    annotations = FrameAnnotations.open(root, fps)
    annotated: dict[int, EpisodeIndexRow] = {}
    for path, group in groupby(sorted(rows, key=lambda row: row.data_path), key=lambda row: row.data_path):
        annotated |= {row.index: row for row in annotations.annotate(path, list(group), episode_rows)}
    readable = [annotated[row.index] for row in rows if row.index in annotated]
    return readable, list(annotations.unread.values())


def read_names(root: Path, files: Sequence[str], name_key: str, index_key: str) -> dict[int, str]:
    """Return index -> name in single spaces, of a list in `meta`; empty if it is missing or has another layout.

    A parquet file has the names in a column of that name, or in the unnamed index of pandas.
    """
    path = next((root / "meta" / name for name in files if (root / "meta" / name).is_file()), None)
    if path is None:
        return {}
    try:
        if path.suffix == ".jsonl":
            records = list(map(parse_json, split_json_lines(read_text(path))))
        else:
            records = [record for record, _ in read_records(path)]
    except (ValueError, DataError):
        return {}  # `check_totals` reports a damaged list
    names = {}
    for record in records:
        name = record.get(name_key, record.get(INDEX_NAME)) if isinstance(record, dict) else None
        if isinstance(name, str) and isinstance(record.get(index_key), int):
            names[record[index_key]] = " ".join(name.split())
    return names


def seems_annotation(name: str) -> bool:
    """Return whether a column seems to annotate frames."""
    return seems_subtask(name) or name.startswith(GROOT_PREFIX)


def lists_blank_task(root: Path) -> bool:
    """Whether a task of a dataset is blank, so that episodes may lack an instruction."""
    return not all(read_names(root, TASK_LISTS, "task", "task_index").values())
