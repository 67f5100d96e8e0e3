"""What must hold of a LeRobot dataset's files before an episode of it is believed: all faults, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from embodied_rm.data.faults import Fault, inside
from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.lerobot.rows import Row
from embodied_rm.data.lerobot.tables import footer, read_parquet
from embodied_rm.data.video.decoder import Decoder, Times
from embodied_rm.errors import DataError


class Begin(NamedTuple):
    """Where the rows of an episode begin."""

    row: int
    """In its data file."""
    first: int
    """Among the frames of the whole dataset."""


ORDER = ("index", "episode_index", "frame_index", "timestamp", "task_index")


def total_faults(
    root: Path, info: Mapping[str, Any], rows: list[Row], tasks: Callable[[Path], int]
) -> tuple[float, list[Fault]]:
    """How many instructions are listed, infinite where nobody can say; and what `info.json` states and the dataset does
    not have: no episode is the worse for it.

    `rows`: of every episode that is listed as it should be.
    """
    path = root / fmt.INFO_PATH
    faults = []
    frames = sum(row.meta.length for row in rows)
    if len(rows) == info["total_episodes"] and frames != info["total_frames"]:
        what = f"states {info['total_frames']} frames, the episodes have {frames}"
        faults.append(Fault(file=path, what=what, episodes=()))
    try:
        listed = tasks(root)
    except DataError as error:
        return np.inf, [*faults, Fault(file=root / "meta", what=str(error), episodes=())]
    if info.get("total_tasks", listed) != listed:
        what = f"states {info['total_tasks']} tasks, {listed} are listed"
        faults.append(Fault(file=path, what=what, episodes=()))
    return listed, faults


def file_faults(
    root: Path, info: Mapping[str, Any], keys: Mapping[str, str], rows: list[Row], tasks: float, decoder: Decoder
) -> tuple[dict[int, Begin], list[Fault]]:
    """Episode -> where its rows begin; and what is wrong with any file, by episode. `keys`: view -> feature; `tasks`:
    how many instructions are listed."""
    begins: dict[int, Begin] = {}
    faults: list[Fault] = []
    for path, some in _by_file((row.data, row) for row in rows):
        begun, found = _data_faults(root, path, some, info, tasks)
        begins |= begun
        faults += found
    places = [(path, (row, start, view)) for row in rows for view, (path, start) in row.videos.items()]
    for path, shown in _by_file(places):
        feature = info["features"][keys[shown[0][2]]]
        faults += _video_faults(root, path, [place[:2] for place in shown], feature, info["fps"], decoder)
    return begins, faults


def _by_file(items: Iterable[tuple[Path, Any]]) -> list[tuple[Path, list[Any]]]:
    ordered = sorted(items, key=lambda item: item[0])
    return [(path, [item for _, item in group]) for path, group in groupby(ordered, key=lambda item: item[0])]


def _data_faults(
    root: Path, path: Path, rows: list[Row], info: Mapping[str, Any], tasks: float
) -> tuple[dict[int, Begin], list[Fault]]:
    """The rows of one data file against the episodes that are said to be in it."""
    everybody = [row.meta.name for row in rows]
    keys = [key for key, feature in info["features"].items() if feature["dtype"] != "video"]
    try:
        if not inside(root, path):
            raise DataError(f"{path}: leads out of the dataset's folder")
        there = footer(path).schema.to_arrow_schema().names
        missing = [key for key in {*keys, *fmt.ROW_FEATURES} if key not in there]
        if missing:
            raise DataError(f"{path}: column {', '.join(sorted(missing))} is missing")
        stored = read_parquet(path, list(ORDER))
        table = {key: _numbers(path, stored[key]) for key in ORDER}
    except DataError as error:
        return {}, [Fault.told_by(error, everybody, path)]
    begins, faults = {}, []
    for row in rows:
        at = np.flatnonzero(table["episode_index"] == row.index)
        what = _row_fault(row, at, table, info["fps"], tasks)
        if what is None:
            begins[row.index] = Begin(int(at[0]), int(table["index"][at[0]]))
        else:
            faults.append(Fault(file=path, what=what, episodes=(row.meta.name,)))
    return begins, faults


def _numbers(path: Path, column: pa.ChunkedArray) -> np.ndarray:
    """float64 [rows], nan where there is none. Raises `DataError` for a column that holds no numbers."""
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        raise DataError(f"{path}: a column holds {column.type} where numbers are due")
    return column.cast(pa.float64()).to_numpy()


def _row_fault(row: Row, at: np.ndarray, table: Mapping[str, np.ndarray], fps: float, tasks: float) -> str | None:
    """What is wrong with the rows `at` of an episode, if anything."""
    length = row.meta.length
    if len(at) != length:
        return f"has {len(at)} rows of episode {row.index}, which has length {length}"
    if at[-1] - at[0] + 1 != length:
        return f"the rows of episode {row.index} do not follow each other"
    count = np.arange(length)
    start = table["index"][at[0]] if row.start is None else row.start
    due = {"frame_index": (count, 0.0), "index": (start + count, 0.0)}
    due["timestamp"] = (count / fps, 0.5 / fps)
    for key, (values, tolerance) in due.items():
        wrong = np.flatnonzero(~(np.abs(table[key][at] - values) <= tolerance))
        if len(wrong):
            k = wrong[0]
            return f"{key} is {table[key][at[k]]:g} in frame {k} of episode {row.index}, where {values[k]:g} is due"
    told = table["task_index"][at]
    if not ((told >= 0) & (told < tasks)).all():
        return f"task_index of episode {row.index} names no task"
    return None


def _video_faults(
    root: Path, path: Path, places: list[tuple[Row, float]], feature: Mapping[str, Any], fps: float, decoder: Decoder
) -> list[Fault]:
    """The frames of one video file against the episodes that are said to be in it."""
    everybody = [row.meta.name for row, _ in places]
    try:
        if not inside(root, path):
            raise DataError(f"{path}: leads out of the dataset's folder")
        video = decoder.probe(path)
        stated, size = _stated_size(feature), (video.height, video.width)
        if stated not in (None, size):
            raise DataError(f"{path}: its pictures are {size[0]}x{size[1]}, info.json states {stated[0]}x{stated[1]}")
    except DataError as error:
        return [Fault.told_by(error, everybody, path)]
    faults = []
    for row, start in places:
        what = _film_fault(row, start, video.times, fps)
        if what is not None:
            faults.append(Fault(file=path, what=what, episodes=(row.meta.name,)))
    stored = sum(row.meta.length for row, _ in places)
    # Of v2.1: in v3.0 what is too much may be that of an episode whose entry is wrong.
    alone = len(places) == 1 and places[0][0].start is None
    if alone and len(video) > stored and not faults:
        what = f"has {len(video)} frames, the only episode in it has {stored} rows"
        faults.append(Fault(file=path, what=what, episodes=tuple(everybody)))
    return faults + _overlaps(path, places, fps)


def _film_fault(row: Row, start: float, times: Times, fps: float) -> str | None:
    """What is wrong with the frames of an episode that begins at `start`, if anything; `times` of all of the file."""
    length = row.meta.length
    begin, end = np.searchsorted(times + 0.5 / fps, [start, start + length / fps])
    if end - begin != length:
        return f"has {end - begin} frames of episode {row.index}, which has {length} rows"
    late = np.abs(times[begin:end] - start - np.arange(length) / fps)
    if late.max() > 0.5 / fps:
        frame = int(np.argmax(late > 0.5 / fps))
        return (
            f"frame {frame} of episode {row.index} is at {times[begin + frame]:g} s, not where {fps:g} a second have it"
        )
    return None


def _overlaps(path: Path, places: list[tuple[Row, float]], fps: float) -> list[Fault]:
    """Episodes that would share frames of one video file: to blame is who does not begin where those before it end."""
    faults = []
    before = np.cumsum([0, *(row.meta.length for row, _ in places)]) / fps
    due = {row.index: start for (row, _), start in zip(places, before, strict=False)}
    for (one, start), (other, begin) in pairwise(sorted(places, key=lambda place: place[1])):
        if begin < start + (one.meta.length - 0.5) / fps:
            moved = [row for row, at in ((one, start), (other, begin)) if abs(at - due[row.index]) > 0.5 / fps]
            what = f"episodes {one.index} and {other.index} overlap"
            faults.append(Fault(file=path, what=what, episodes=tuple(row.meta.name for row in moved or (one, other))))
    return faults


def _stated_size(feature: Mapping[str, Any]) -> tuple[int, int] | None:
    """Height and width that `info.json` states of a video feature, where it says which number is which."""
    names, shape = feature.get("names"), feature["shape"]
    if not isinstance(names, list) or not isinstance(shape, list) or len(names) != len(shape):
        return None
    if not {"height", "width"} <= {name for name in names if isinstance(name, str)}:
        return None
    return shape[names.index("height")], shape[names.index("width")]
