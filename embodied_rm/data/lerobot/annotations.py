"""Write annotations into a LeRobot v3.0 dataset written by this package.

`meta/episodes` is authoritative and replaced first. The per-frame column `subtask_index` and its statistics duplicate
it for other readers; `repair` rewrites them after a crash.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embodied_rm.data.annotation import Annotation
from embodied_rm.data.dataset_files import dump_json_like, read_json, write_inside
from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.lerobot.parquet import read_footer, read_parquet, rewrite_parquet, to_records
from embodied_rm.data.lerobot.stats import FeatureStats, aggregate_stats, column_stats
from embodied_rm.data.lerobot.v30 import INDEX_COLUMNS, episode_files, file_path, is_needed, parse_meta
from embodied_rm.data.lerobot.write import subtask_column
from embodied_rm.errors import DataError
from embodied_rm.types import IntArray

ANNOTATION_COLUMNS = (fmt.NAME_KEY, fmt.SUCCESS_KEY, *fmt.SUBTASK_COLUMNS)
SUBTASK_STATS_PREFIX = f"stats/{fmt.SUBTASK_KEY}/"


class LeRobotAnnotationStore:
    """The annotations of the episodes with these indices in a LeRobot dataset, an `AnnotationStore`."""

    def __init__(self, root: Path, episode_indices: Sequence[int]) -> None:
        """Check that the dataset is v3.0 and has the columns for subtasks and success; raise `DataError` if not."""
        self._root, self._episode_indices = root, tuple(episode_indices)
        info = fmt.read_info(root)
        self._fps = float(info["fps"])
        if fmt.major_version(info) != fmt.MAJOR_VERSION:
            raise DataError(f"{root}: is written in LeRobot's version {info['codebase_version']}")
        has_subtasks = fmt.SUBTASK_KEY in info["features"]
        for path in episode_files(root):
            columns = read_footer(path).schema.to_arrow_schema().names
            missing = [name for name in ANNOTATION_COLUMNS if name not in columns]
            if missing or not has_subtasks:
                missing_names = ", ".join(missing) or fmt.SUBTASK_KEY
                raise DataError(f"{root}: has no columns for subtasks and success ({missing_names})")

    def read(self, index: int) -> Annotation:
        """See `AnnotationStore.read`."""
        _, record = _find_record(self._root, self._episode_indices[index])
        meta = parse_meta(record, self._fps)
        return Annotation(subtasks=meta.subtasks, success=meta.success)

    def write(self, index: int, annotation: Annotation) -> None:
        """See `AnnotationStore.write`."""
        if annotation == self.read(index):
            return
        episode_index, subtasks = self._episode_indices[index], annotation.subtasks
        path, record = _find_record(self._root, episode_index)
        column = subtask_column(subtasks, record["length"])
        stats = {SUBTASK_STATS_PREFIX + key: value.tolist() for key, value in column_stats(column).items()}
        values: dict[str, Any] = {fmt.SUCCESS_KEY: annotation.success, **fmt.subtask_values(subtasks)}
        values |= {key: value for key, value in stats.items() if key in record}
        content = rewrite_parquet(path, lambda table: _replace_values(table, episode_index, values))
        write_inside(self._root, path, content)
        _update_frames(self._root, {episode_index: column})

    def repair(self) -> tuple[str, ...]:
        """See `AnnotationStore.repair`."""
        outdated: dict[int, IntArray] = {}
        repaired = []
        table_by_path: dict[Path, pa.Table] = {}
        records = {record["episode_index"]: record for _, record in _iter_records(self._root)}
        for episode_index in self._episode_indices:
            record = records[episode_index]
            path, meta = file_path(self._root, record, "data", fmt.DATA_PATH), parse_meta(record, self._fps)
            if path not in table_by_path:
                table_by_path = {path: read_parquet(path, ["episode_index", fmt.SUBTASK_KEY])}
            mask = pc.equal(table_by_path[path]["episode_index"], episode_index)
            expected = subtask_column(meta.subtasks, meta.length)
            if not np.array_equal(table_by_path[path].filter(mask)[fmt.SUBTASK_KEY].to_numpy(), expected):
                outdated[episode_index] = expected
                repaired.append(meta.name)
        if outdated:
            _update_frames(self._root, outdated)
        return tuple(repaired)


def _iter_records(root: Path, episode_index: int | None = None) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the rows of `meta/episodes` (of one episode, or all) and their files, without the columns on videos."""
    for path in episode_files(root):
        columns = read_footer(path).schema.to_arrow_schema().names
        needed = {"tasks", *INDEX_COLUMNS}
        names = [name for name in columns if name in needed or name.startswith(SUBTASK_STATS_PREFIX) or is_needed(name)]
        table = read_parquet(path, names)
        rows = table if episode_index is None else table.filter(pc.equal(table["episode_index"], episode_index))
        yield from ((path, record) for record, _ in to_records(rows))


def _find_record(root: Path, episode_index: int) -> tuple[Path, dict[str, Any]]:
    match = next(_iter_records(root, episode_index), None)
    if match is None:
        raise DataError(f"{root}: episode {episode_index} is no longer listed")
    return match


def _replace_values(table: pa.Table, episode_index: int, values: Mapping[str, Any]) -> pa.Table:
    """Replace values in the `meta/episodes` row of an episode."""
    row = pc.index(table["episode_index"], episode_index).as_py()
    for name, value in values.items() if row >= 0 else ():
        column = table[name].to_pylist()
        column[row] = value
        table = _replace_column(table, name, column)
    return table


def _replace_column(table: pa.Table, name: str, values: Sequence[Any] | np.ndarray) -> pa.Table:
    """Replace a column, whose type is kept."""
    index = table.schema.get_field_index(name)
    field = table.schema.field(index)
    return table.set_column(index, field, pa.array(values, field.type))


def _update_frames(root: Path, columns: Mapping[int, IntArray]) -> None:
    """Update `subtask_index` of frames, and its statistics, from `meta/episodes`.

    The frames are written last, because `repair` detects an interrupted write by them.
    """
    path = root / fmt.STATS_PATH
    if path.exists() and fmt.SUBTASK_KEY in read_json(path, "JSON", dict):
        text = path.read_bytes().decode()
        stats = json.loads(text) | {fmt.SUBTASK_KEY: _aggregate_subtask_stats(root)}
        write_inside(root, path, dump_json_like(text, stats))
    records = [_find_record(root, episode_index)[1] for episode_index in columns]
    for path in {file_path(root, record, "data", fmt.DATA_PATH) for record in records}:
        write_inside(root, path, rewrite_parquet(path, lambda table: _replace_subtasks(table, columns)))


def _replace_subtasks(table: pa.Table, columns: Mapping[int, IntArray]) -> pa.Table:
    episode_indices, frame_indices = table["episode_index"].to_numpy(), table["frame_index"].to_numpy()
    subtasks = table[fmt.SUBTASK_KEY].to_numpy().copy()
    for episode_index, column in columns.items():
        mask = episode_indices == episode_index
        subtasks[mask] = column[frame_indices[mask]]
    return _replace_column(table, fmt.SUBTASK_KEY, subtasks)


def _aggregate_subtask_stats(root: Path) -> dict[str, Any]:
    """Compute the statistics of `subtask_index` over the whole dataset."""
    parts: list[FeatureStats] = []
    for _, record in _iter_records(root):
        stats = {key: value for key, value in record.items() if key.startswith(SUBTASK_STATS_PREFIX)}
        if stats and None not in stats.values():
            parts.append({key.removeprefix(SUBTASK_STATS_PREFIX): np.array(value) for key, value in stats.items()})
    return {key: value.tolist() for key, value in aggregate_stats(parts).items()}
