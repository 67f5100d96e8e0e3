"""What must hold of a LeRobot v3.0 folder before an episode of it is believed: all faults found in one pass."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.lerobot.index import Row
from embodied_rm.data.video.decoder import Decoder
from embodied_rm.data.video.mp4 import check_file
from embodied_rm.errors import DataError

SHOWN = 8
"""Faults that a message spells out; the rest is counted."""


def read_info(root: Path) -> dict[str, Any]:
    """`meta/info.json`, checked as far as the reader relies on it. Raises `DataError` naming the first fault."""
    path = root / fmt.INFO_PATH
    check_file(path, "dataset description")
    try:
        info = json.loads(path.read_text())
    except ValueError as error:
        raise DataError(f"{path}: not valid JSON ({error})") from None
    if not isinstance(info, dict):
        raise DataError(f"{path}: a JSON object was expected")
    version = info.get("codebase_version")
    if version != fmt.VERSION:
        raise DataError(f"{path}: the dataset has LeRobot version {version!r}; only {fmt.VERSION!r} can be read")
    for key, kind in (("total_episodes", int), ("total_frames", int), ("fps", int | float), ("features", dict)):
        if not isinstance(info.get(key), kind):
            raise DataError(f"{path}: {key!r} is {info.get(key)!r}")
    if not 0 < info["fps"] < 10_000:
        raise DataError(f"{path}: fps is {info['fps']}")
    for key, template in (("data_path", fmt.DATA_PATH), ("video_path", fmt.VIDEO_PATH)):
        if info.get(key) != template:
            raise DataError(f"{path}: {key!r} is {info.get(key)!r}; only {template!r} can be read")
    for key, feature in info["features"].items():
        if not isinstance(feature, dict) or not isinstance(feature.get("dtype"), str) or "shape" not in feature:
            raise DataError(f"{path}: feature {key!r} has no dtype and shape")
    return info


def read_parquet(path: Path, columns: list[str] | None = None) -> pa.Table:
    """A parquet file, or a `DataError` naming it and its fault."""
    footer(path)
    try:
        return pq.read_table(path, columns=columns, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read ({_first_line(error)})") from None


def footer(path: Path) -> pq.FileMetaData:
    """The footer of a parquet file: a file that was never finished has none. Raises `DataError`."""
    check_file(path, "parquet")
    try:
        return pq.read_metadata(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cut short or not parquet ({_first_line(error)})") from None


def check_all(root: Path, info: Mapping[str, Any], rows: list[Row], decoder: Decoder) -> None:
    """Raise one `DataError` that lists what is wrong with the folder, if anything."""
    faults = [
        *_order_faults(info, rows),
        *_task_faults(root, info),
        *(
            fault
            for path, some in _by_file((row.data, row) for row in rows)
            for fault in _data_faults(path, some, info)
        ),
    ]
    places = [(path, (row, start)) for row in rows for path, start in row.videos.values()]
    for path, some in _by_file(places):
        faults += _video_faults(path, some, info["fps"], decoder)
    if faults:
        more = f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
        raise DataError(f"{root}: the dataset is damaged: {'; '.join(faults[:SHOWN])}{more}")


def _by_file(items: Iterable[tuple[Path, Any]]) -> list[tuple[Path, list[Any]]]:
    ordered = sorted(items, key=lambda item: item[0])
    return [(path, [item for _, item in group]) for path, group in groupby(ordered, key=lambda item: item[0])]


def _order_faults(info: Mapping[str, Any], rows: list[Row]) -> list[str]:
    """Episodes numbered 0, 1, ..., their frames end to end, the totals as stated."""
    faults = []
    if len(rows) != info["total_episodes"]:
        faults.append(f"info.json states {info['total_episodes']} episodes, {len(rows)} are listed")
    at = 0
    for expected, row in enumerate(rows):
        if row.index != expected:
            faults.append(f"episode {expected} is missing or listed twice")
            break
        if row.start != at:
            faults.append(f"episode {row.index} starts at row {row.start}, the one before ends at {at}")
        at = row.start + row.meta.length
    if at != info["total_frames"]:
        faults.append(f"info.json states {info['total_frames']} frames, the episodes have {at}")
    return faults


def _task_faults(root: Path, info: Mapping[str, Any]) -> list[str]:
    try:
        count = footer(root / fmt.TASKS_PATH).num_rows
    except DataError as error:
        return [str(error)]
    stated = info.get("total_tasks", count)
    return [] if count == stated else [f"info.json states {stated} tasks, {fmt.TASKS_PATH} has {count}"]


def _data_faults(path: Path, rows: list[Row], info: Mapping[str, Any]) -> list[str]:
    """The rows of one data file against the episodes that are said to be in it."""
    lengths = [row.meta.length for row in rows]
    keys = [key for key, feature in info["features"].items() if feature["dtype"] != "video"]
    try:
        foot = footer(path)
        missing = [key for key in {*keys, *fmt.ROW_FEATURES} if key not in foot.schema.to_arrow_schema().names]
        if missing:
            return [f"{path}: column {', '.join(sorted(missing))} is missing"]
        if foot.num_rows != sum(lengths):
            return [f"{path}: has {foot.num_rows} rows, its episodes have {sum(lengths)}"]
        table = read_parquet(path, ["index", "episode_index", "frame_index", "timestamp"])
    except DataError as error:
        return [str(error)]
    due = {
        "index": np.concatenate([np.arange(row.start, row.start + row.meta.length) for row in rows]),
        "episode_index": np.repeat([row.index for row in rows], lengths),
        "frame_index": np.concatenate([np.arange(length) for length in lengths]),
    }
    faults = [fault for key, column in due.items() for fault in _column_faults(path, key, table, column, 0.0)]
    seconds = due["frame_index"] / info["fps"]
    return faults + _column_faults(path, "timestamp", table, seconds, 0.5 / info["fps"])


def _column_faults(path: Path, key: str, table: pa.Table, due: np.ndarray, tolerance: float) -> list[str]:
    column = table[key].to_numpy()
    wrong = np.flatnonzero(~(np.abs(column - due) <= tolerance))
    if len(wrong) == 0:
        return []
    return [f"{path}: {key} is {column[wrong[0]]} in row {wrong[0]} where {due[wrong[0]]} is due"]


def _video_faults(path: Path, places: list[tuple[Row, float]], fps: float, decoder: Decoder) -> list[str]:
    """The frames of one video file against the episodes that are said to be in it."""
    try:
        times = decoder.probe(path).times + 0.5 / fps
    except DataError as error:
        return [str(error)]
    faults = []
    for row, start in places:
        there = int(np.diff(np.searchsorted(times, [start, start + row.meta.length / fps]))[0])
        if there != row.meta.length:
            faults.append(f"{path}: has {there} frames of episode {row.index}, which has {row.meta.length} rows")
    starts = sorted((start, row.meta.length / fps) for row, start in places)
    if any(b < a + length - 0.5 / fps for (a, length), (b, _) in pairwise(starts)):
        faults.append(f"{path}: episodes overlap")
    return faults


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
