"""The episodes of a LeRobot v2.1 (or v2.0) dataset: `meta/episodes.jsonl`, and a file for each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from embodied_rm.data.faults import Fault
from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.lerobot.rows import Row, order_faults, usual_name
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.data.video.mp4 import check_file
from embodied_rm.errors import DataError

INDEX = re.compile(r'"episode_index"\s*:\s*(\d{1,9})\b')


def read_rows(root: Path, info: Mapping[str, Any], keys: Mapping[str, str]) -> tuple[list[Row], list[Fault]]:
    """The episodes in order of their index, and what is wrong with others. `keys`: view -> feature.

    Raises `DataError` when the list cannot be read.
    """
    path = root / fmt.V21_EPISODES_PATH
    chunk = info.get("chunks_size", fmt.FILES_PER_CHUNK)
    if not isinstance(chunk, int) or chunk < 1:
        raise DataError(f"{root / fmt.INFO_PATH}: 'chunks_size' is {chunk!r}")
    records: list[dict[str, Any]] = []
    faults: list[Fault] = []
    wrong: set[int] = set()
    here = -1
    for at, line in _lines(path):
        here = _index(line, here + 1)
        try:
            records.append(_record(line, at))
        except DataError as error:
            wrong.add(here)
            faults.append(Fault(file=path, what=str(error), episodes=(usual_name(here),)))
    rows = _placed(root, sorted(records, key=lambda record: record["episode_index"]), keys, chunk)
    faults += order_faults(path, rows, wrong, info["total_episodes"])
    return rows, faults


def task_count(root: Path) -> int:
    """How many instructions are listed. Raises `DataError` when the list cannot be read."""
    return sum(1 for _ in _lines(root / fmt.V21_TASKS_PATH))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a JSONL file that are not empty, numbered from 0."""
    check_file(path, "list")
    try:
        content = path.read_text()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is no text ({error})") from None
    yield from enumerate(line for line in content.splitlines() if line.strip())


def _index(line: str, due: int) -> int:
    """Whose line it is, in whatever state; they are listed in order, so that of one that does not say it is `due`."""
    told = INDEX.search(line)
    return due if told is None else int(told.group(1))


def _record(line: str, at: int) -> dict[str, Any]:
    """One entry, as far as it is relied on. Raises `DataError` saying what is wrong with it."""
    try:
        record = json.loads(line)
    except ValueError as error:
        raise DataError(f"line {at + 1} is not valid JSON ({error})") from None
    if not isinstance(record, dict) or type(record.get("episode_index")) is not int:
        raise DataError(f"line {at + 1} has no episode_index")
    index, length, tasks = record["episode_index"], record.get("length"), record.get("tasks")
    if type(length) is not int or length < 1:
        raise DataError(f"episode {index} has length {length!r}")
    if not isinstance(tasks, list) or not tasks or not all(isinstance(task, str) for task in tasks):
        raise DataError(f"episode {index} has no tasks")
    return record


def _placed(root: Path, records: list[dict[str, Any]], keys: Mapping[str, str], chunk: int) -> list[Row]:
    rows = []
    for record in records:
        index = record["episode_index"]
        place = {"episode_index": index, "episode_chunk": index // chunk}
        rows.append(
            Row(
                index=index,
                meta=EpisodeMeta(name=usual_name(index), length=record["length"], instruction=record["tasks"][0]),
                start=None,
                data=root / fmt.V21_DATA_PATH.format(**place),
                videos={v: (root / fmt.V21_VIDEO_PATH.format(**place, video_key=k), 0.0) for v, k in keys.items()},
            )
        )
    return rows
