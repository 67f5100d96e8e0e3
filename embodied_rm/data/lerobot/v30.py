"""The episodes of a LeRobot v3.0 dataset: `meta/episodes`, a table with the places of everything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from embodied_rm.data.faults import Fault, inside
from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.lerobot.rows import Row, order_faults, usual_name
from embodied_rm.data.lerobot.tables import footer, read_parquet
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.errors import DataError, UserError
from embodied_rm.types import Step


def read_rows(root: Path, info: Mapping[str, Any], keys: Mapping[str, str]) -> tuple[list[Row], list[Fault]]:
    """The episodes in order of their index, and what is wrong with others. `keys`: view -> feature.

    Raises `DataError` when no list can be read.
    """
    listing = root / "meta" / "episodes"
    paths = listings(root)
    if not paths:
        raise DataError(f"{listing}: no episodes are listed there (no chunk-*/file-*.parquet)")
    rows: list[Row] = []
    faults: list[Fault] = []
    wrong: set[int] = set()
    for path in paths:
        try:
            records = _records(path, keys)
        except DataError as error:
            faults.append(Fault.told_by(error, (), path))
            continue
        for record in records:
            index = len(rows) + len(wrong) if record["episode_index"] is None else record["episode_index"]
            try:
                rows.append(_row(root, record, keys))
            except DataError as error:
                wrong.add(index)
                faults.append(Fault(file=path, what=str(error), episodes=(_name(record, index),)))
    if not rows and not wrong:
        raise DataError(str(faults[0]) if faults else f"{listing}: lists no episodes")
    faults += order_faults(listing, rows, wrong, info["total_episodes"])
    return sorted(rows, key=lambda row: row.index), faults


def listings(root: Path) -> list[Path]:
    """The files that list the episodes. Raises `DataError` for one that a link leads out of the dataset."""
    paths = sorted((root / "meta" / "episodes").glob("chunk-*/file-*.parquet"))
    for path in paths:
        if not inside(root, path):
            raise DataError(f"{path}: leads out of the dataset's folder")
    return paths


def task_count(root: Path) -> int:
    """How many instructions are listed. Raises `DataError` when the list cannot be read."""
    return footer(root / fmt.TASKS_PATH).num_rows


def _records(path: Path, keys: Mapping[str, str]) -> list[dict[str, Any]]:
    schema = footer(path).schema.to_arrow_schema()
    for name, kind in _needed_columns(keys).items():
        if name not in schema.names:
            raise DataError(f"{path}: column {name} is missing")
        if not _holds(schema.field(name).type, kind):
            raise DataError(f"{path}: column {name} holds {schema.field(name).type}, {kind} was expected")
    return read_parquet(path, [name for name in schema.names if not name.startswith("stats/")]).to_pylist()


def _holds(found: pa.DataType, kind: str) -> bool:
    if kind == "int64":
        return pa.types.is_integer(found)
    if kind == "double":
        return pa.types.is_floating(found)
    return pa.types.is_list(found) and (
        pa.types.is_string(found.value_type) or pa.types.is_large_string(found.value_type)
    )


def _needed_columns(keys: Mapping[str, str]) -> dict[str, str]:
    """Columns without which `meta/episodes` cannot be read -> what they hold."""
    counts = ["episode_index", "length", "dataset_from_index", "data/chunk_index", "data/file_index"]
    counts += [f"videos/{key}/{part}_index" for key in keys.values() for part in ("chunk", "file")]
    times = [f"videos/{key}/from_timestamp" for key in keys.values()]
    return dict.fromkeys(counts, "int64") | dict.fromkeys(times, "double") | {"tasks": "list<string>"}


def _row(root: Path, record: Mapping[str, Any], keys: Mapping[str, str]) -> Row:
    """One row of `meta/episodes` with its files. Raises `DataError` when it makes no sense in itself."""
    index = record["episode_index"]
    empty = [key for key in _needed_columns(keys) if record[key] is None]
    if empty or not record["tasks"]:
        raise DataError(f"episode {index} has no {(empty or ['tasks'])[0]}")
    if record["length"] < 1:
        raise DataError(f"episode {index} has length {record['length']}")
    place = {"chunk_index": record["data/chunk_index"], "file_index": record["data/file_index"]}
    return Row(
        index=index,
        meta=meta_of(record),
        start=record["dataset_from_index"],
        data=root / fmt.DATA_PATH.format(**place),
        videos={view: _video_place(root, record, key) for view, key in keys.items()},
    )


def _video_place(root: Path, record: Mapping[str, Any], key: str) -> tuple[Path, float]:
    chunk, file, start = (record[f"videos/{key}/{part}"] for part in ("chunk_index", "file_index", "from_timestamp"))
    return root / fmt.VIDEO_PATH.format(video_key=key, chunk_index=chunk, file_index=file), start


def _name(record: Mapping[str, Any], index: int) -> str:
    """What an episode is called, by itself or by its index."""
    name = record.get(fmt.NAME)
    return name if isinstance(name, str) and name else usual_name(index)


def meta_of(record: Mapping[str, Any]) -> EpisodeMeta:
    """What a row of `meta/episodes` says of its episode. Raises `DataError` where it makes no sense."""
    index, length = record["episode_index"], record["length"]
    columns = (record.get(key) or () for key in (fmt.STEP_NAMES, fmt.STEP_STARTS, fmt.STEP_ENDS))
    try:
        steps = tuple(Step(name=n, start=a, end=b) for n, a, b in zip(*columns, strict=True))
    except (UserError, ValueError, TypeError) as error:
        raise DataError(f"the steps of episode {index} make no sense ({error})") from None
    if steps and steps[-1].end > length:
        raise DataError(f"step {steps[-1].name!r} of episode {index} ends at {steps[-1].end}, after the last frame")
    success = record.get(fmt.SUCCESS)
    return EpisodeMeta(
        name=_name(record, index),
        length=length,
        instruction=record["tasks"][0],
        success=success if isinstance(success, bool) else None,
        steps=steps,
        text={
            key.removeprefix(fmt.TEXT): text
            for key, text in record.items()
            if key.startswith(fmt.TEXT) and isinstance(text, str)
        },
    )
