"""The episode index of a LeRobot v2.1 (or v2.0) dataset: `meta/episodes.jsonl`, and one file per episode."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from embodied_rm.data.dataset_files import check_file, parse_json, split_json_lines
from embodied_rm.data.issues import DataIssue, EntryIssues
from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.lerobot.episode_index import (
    EpisodeIndexRow,
    VideoSegment,
    check_episode_list,
    default_name,
    find_unread,
    first_instruction,
)
from embodied_rm.data.lerobot.episode_subtasks import read_episode_subtasks
from embodied_rm.data.lerobot.success_columns import episode_success
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.errors import DataError
from embodied_rm.text_file import read_text

MAX_LIST_BYTES = 1 << 30  # of a list, of which a line is parsed at a time: a million episodes take 150 MB

INDEX_PATTERN = re.compile(r'"episode_index"\s*:\s*(\d{1,9})\b')


def read_rows(
    root: Path, info: Mapping[str, Any], video_keys: Mapping[str, str]
) -> tuple[list[EpisodeIndexRow], list[DataIssue]]:
    """Read the episode index: the valid rows, sorted by episode index, and the issues of the others.

    `video_keys`: view -> feature, of views that are stored as videos.
    """
    path = root / fmt.V21_EPISODES_PATH
    chunk_size = info.get("chunks_size", fmt.FILES_PER_CHUNK)
    if not isinstance(chunk_size, int) or chunk_size < 1:
        raise DataError(f"{root / fmt.INFO_PATH}: 'chunks_size' is {chunk_size!r}")
    records, columns = list[dict[str, Any]](), set[str]()
    rows: list[EpisodeIndexRow] = []
    issues, invalid = EntryIssues(path), set[int]()
    index = -1
    for line_index, line in _read_lines(path):
        index = _find_index(line, index + 1)
        try:
            record = _parse_record(line, line_index)
            records.append(record)
            columns.update(iterate_keys(record))
            rows.append(_build_row(root, record, video_keys, chunk_size, info["fps"]))
        except DataError as error:
            invalid.add(index)
            issues.add(str(error), default_name(index))
    found = [*issues.collect(), *check_episode_list(path, rows, invalid, info["total_episodes"])]
    return sorted(rows, key=lambda row: row.index), found + find_unread(path, records, columns)


def iterate_keys(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys of an entry, and as `<key>/<key>` those of the objects in it."""
    objects: list[tuple[str, Mapping[str, Any]]] = [("", record)]
    while objects:
        prefix, content = objects.pop()
        yield from (prefix + key for key in content)
        objects += [(f"{prefix}{key}/", value) for key, value in content.items() if isinstance(value, dict)]


def count_tasks(root: Path) -> int:
    """Count the listed instructions."""
    return sum(1 for _ in _read_lines(root / fmt.V21_TASKS_PATH))


def _read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the non-empty lines of a JSONL file, numbered from 0."""
    check_file(path, "list")
    yield from enumerate(split_json_lines(read_text(path, MAX_LIST_BYTES)))


def _find_index(line: str, default: int) -> int:
    """Return the episode index in a line that may be damaged; `default`, the next index, if there is none."""
    match = INDEX_PATTERN.search(line)
    return default if match is None else int(match.group(1))


def _parse_record(line: str, line_index: int) -> dict[str, Any]:
    """Parse one entry. A `DataError` holds only a clause with the issue."""
    try:
        record = parse_json(line)
    except ValueError as error:
        raise DataError(f"line {line_index + 1} is not valid JSON ({error})") from None
    if not isinstance(record, dict) or type(record.get("episode_index")) is not int:
        raise DataError(f"line {line_index + 1} has no episode_index")
    index, length, tasks = record["episode_index"], record.get("length"), record.get("tasks")
    if type(length) is not int or length < 1:
        raise DataError(f"episode {index} has length {length!r}")
    if not isinstance(tasks, list) or not tasks or not all(isinstance(task, str) for task in tasks):
        raise DataError(f"episode {index} has no tasks")
    return record


def _build_row(
    root: Path, record: Mapping[str, Any], video_keys: Mapping[str, str], chunk_size: int, fps: float
) -> EpisodeIndexRow:
    """Build the row of one episode. A `DataError` holds only a clause with the issue."""
    index = record["episode_index"]
    fields = {"episode_index": index, "episode_chunk": index // chunk_size}
    return EpisodeIndexRow(
        index=index,
        meta=EpisodeMeta(
            name=default_name(index),
            length=record["length"],
            instruction=first_instruction(record["tasks"]),
            success=episode_success(record),
            subtasks=read_episode_subtasks(record, fps),
        ),
        dataset_from_index=None,
        data_path=root / fmt.V21_DATA_PATH.format(**fields),
        videos={
            view: VideoSegment(root / fmt.V21_VIDEO_PATH.format(**fields, video_key=key))
            for view, key in video_keys.items()
        },
    )
