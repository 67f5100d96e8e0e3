"""Writes annotations back into a LeRobot v3.0 dataset of ours.

`meta/episodes` says what holds, and is replaced first. The column `step` of every frame and the statistics say the same
once more, for other readers; where a crash left them behind, `mend` writes them again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embodied_rm.data.annotation import Annotation
from embodied_rm.data.json_file import json_like, read_json
from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.lerobot.info import read_info
from embodied_rm.data.lerobot.stats import Stats, column_stats, pooled
from embodied_rm.data.lerobot.tables import changed, footer, read_parquet
from embodied_rm.data.lerobot.v30 import listings, meta_of
from embodied_rm.data.lerobot.write import step_column
from embodied_rm.data.write_inside import write_inside
from embodied_rm.errors import DataError
from embodied_rm.types import IntArray

OURS = (fmt.NAME, fmt.SUCCESS, fmt.STEP_NAMES, fmt.STEP_STARTS, fmt.STEP_ENDS)
STAT = f"stats/{fmt.STEP}/"


class LeRobotAnnotations:
    """The annotations of the episodes `numbers` (their indices in the dataset), an `AnnotationStore`."""

    def __init__(self, root: Path, numbers: Sequence[int]) -> None:
        """Raises `DataError` for a dataset without columns of ours."""
        self._root, self._numbers = root, tuple(numbers)
        info = read_info(root)
        if info["codebase_version"] != fmt.VERSION:
            raise DataError(f"{root}: is written in LeRobot's version {info['codebase_version']}")
        has_steps = fmt.STEP in info["features"]
        for path in listings(root):
            missing = [name for name in OURS if name not in footer(path).schema.to_arrow_schema().names]
            if missing or not has_steps:
                raise DataError(f"{root}: has no columns for steps and success ({', '.join(missing) or fmt.STEP})")

    def read(self, index: int) -> Annotation:
        """See `AnnotationStore.read`."""
        _, record = _find(self._root, self._numbers[index])
        meta = meta_of(record)
        return Annotation(steps=meta.steps, success=meta.success)

    def write(self, index: int, annotation: Annotation) -> None:
        """See `AnnotationStore.write`."""
        if annotation == self.read(index):
            return
        number, steps = self._numbers[index], annotation.steps
        path, record = _find(self._root, number)
        column = step_column(steps, record["length"])
        values: dict[str, Any] = {
            fmt.SUCCESS: annotation.success,
            fmt.STEP_NAMES: [step.name for step in steps],
            fmt.STEP_STARTS: [step.start for step in steps],
            fmt.STEP_ENDS: [step.end for step in steps],
            **{STAT + key: value.tolist() for key, value in column_stats(column).items() if STAT + key in record},
        }
        write_inside(self._root, path, changed(path, lambda table: _with_values(table, number, values)))
        _follow(self._root, {number: column})

    def mend(self) -> tuple[str, ...]:
        """See `AnnotationStore.mend`."""
        behind: dict[int, IntArray] = {}
        names = []
        stored: dict[Path, pa.Table] = {}
        records = {record["episode_index"]: record for _, record in _records(self._root)}
        for number in self._numbers:
            record = records[number]
            path, meta = _data_file(self._root, record), meta_of(record)
            if path not in stored:
                stored = {path: read_parquet(path, ["episode_index", fmt.STEP])}
            mine = pc.equal(stored[path]["episode_index"], number)
            due = step_column(meta.steps, meta.length)
            if not np.array_equal(stored[path].filter(mine)[fmt.STEP].to_numpy(), due):
                behind[number] = due
                names.append(meta.name)
        if behind:
            _follow(self._root, behind)
        return tuple(names)


def _records(root: Path, number: int | None = None) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The rows of `meta/episodes`, of one episode or all, and the files they are in; without what is said of films."""
    for path in listings(root):
        table = read_parquet(path, [n for n in footer(path).schema.to_arrow_schema().names if _matters(n)])
        rows = table if number is None else table.filter(pc.equal(table["episode_index"], number))
        yield from ((path, record) for record in rows.to_pylist())


def _find(root: Path, number: int) -> tuple[Path, dict[str, Any]]:
    found = next(_records(root, number), None)
    if found is None:
        raise DataError(f"{root}: episode {number} is not listed any more")
    return found


def _matters(column: str) -> bool:
    return column.startswith(STAT) or not column.startswith(("stats/", "videos/"))


def _with_values(table: pa.Table, number: int, values: Mapping[str, Any]) -> pa.Table:
    """`meta/episodes` with other values in the row of an episode."""
    at = pc.index(table["episode_index"], number).as_py()
    for name, value in values.items() if at >= 0 else ():
        place, column = table.schema.get_field_index(name), table[name].to_pylist()
        column[at] = value
        field = table.schema.field(place)
        table = table.set_column(place, field, pa.array(column, field.type))
    return table


def _data_file(root: Path, record: Mapping[str, Any]) -> Path:
    return root / fmt.DATA_PATH.format(**{key: record[f"data/{key}"] for key in ("chunk_index", "file_index")})


def _follow(root: Path, columns: Mapping[int, IntArray]) -> None:
    """Let `step` of these episodes' frames, and its statistics, say what `meta/episodes` says; the frames last, since
    by them `mend` knows what was interrupted."""
    path = root / fmt.STATS_PATH
    if path.exists() and fmt.STEP in read_json(path, "JSON", dict):
        text = path.read_bytes().decode()
        write_inside(root, path, json_like(text, json.loads(text) | {fmt.STEP: _pooled_steps(root)}))
    for path in {_data_file(root, _find(root, number)[1]) for number in columns}:
        write_inside(root, path, changed(path, lambda table: _with_steps(table, columns)))


def _with_steps(table: pa.Table, columns: Mapping[int, IntArray]) -> pa.Table:
    numbers, frames, steps = (table[key].to_numpy() for key in ("episode_index", "frame_index", fmt.STEP))
    steps = steps.copy()
    for number, column in columns.items():
        mine = numbers == number
        steps[mine] = column[frames[mine]]
    place = table.schema.get_field_index(fmt.STEP)
    field = table.schema.field(place)
    return table.set_column(place, field, pa.array(steps, field.type))


def _pooled_steps(root: Path) -> dict[str, Any]:
    """Statistics of `step` over the whole dataset."""
    parts: list[Stats] = []
    for _, record in _records(root):
        told = {key.removeprefix(STAT): value for key, value in record.items() if key.startswith(STAT)}
        if told and None not in told.values():
            parts.append({key: np.array(value) for key, value in told.items()})
    return {key: value.tolist() for key, value in pooled(parts).items()}
