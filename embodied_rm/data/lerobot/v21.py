"""The episode index of a LeRobot v2.1 (or v2.0) dataset: `meta/episodes.jsonl`, and one file per episode."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from embodied_rm.data.dataset_files import check_file
from embodied_rm.data.issues import DataIssue
from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.lerobot.episode_index import EpisodeIndexRow, check_episode_list, default_name
from embodied_rm.data.lerobot.episode_subtasks import read_episode_subtasks
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.errors import DataError

SUBTASKS = "subtasks"  # key of the subtasks in a record
INDEX_PATTERN = re.compile(r'"episode_index"\s*:\s*(\d{1,9})\b')


def read_rows(
    root: Path, info: Mapping[str, Any], feature_keys: Mapping[str, str]
) -> tuple[list[EpisodeIndexRow], list[DataIssue]]:
    """Read the episode index: the valid rows, sorted by episode index, and the issues of the others."""
    path = root / fmt.V21_EPISODES_PATH
    chunk_size = info.get("chunks_size", fmt.FILES_PER_CHUNK)
    if not isinstance(chunk_size, int) or chunk_size < 1:
        raise DataError(f"{root / fmt.INFO_PATH}: 'chunks_size' is {chunk_size!r}")
    records: list[dict[str, Any]] = []
    issues: list[DataIssue] = []
    invalid: set[int] = set()
    index = -1
    for line_index, line in _read_lines(path):
        index = _find_index(line, index + 1)
        try:
            records.append(_parse_record(line, line_index))
        except DataError as error:
            invalid.add(index)
            issues.append(DataIssue(file=path, message=str(error), episodes=(default_name(index),)))
    rows = _build_rows(root, sorted(records, key=lambda record: record["episode_index"]), feature_keys, chunk_size)
    issues += check_episode_list(path, rows, invalid, info["total_episodes"])
    return rows, issues


def count_tasks(root: Path) -> int:
    """Count the listed instructions."""
    return sum(1 for _ in _read_lines(root / fmt.V21_TASKS_PATH))


def _read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the non-empty lines of a JSONL file, numbered from 0."""
    check_file(path, "list")
    try:
        content = path.read_text()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not a text file ({error})") from None
    yield from enumerate(line for line in content.splitlines() if line.strip())


def _find_index(line: str, default: int) -> int:
    """Return the episode index in a line that may be damaged; `default`, the next index, if there is none."""
    match = INDEX_PATTERN.search(line)
    return default if match is None else int(match.group(1))


def _parse_record(line: str, line_index: int) -> dict[str, Any]:
    """Parse one entry. A `DataError` holds only a clause with the issue."""
    try:
        record = json.loads(line)
    except ValueError as error:
        raise DataError(f"line {line_index + 1} is not valid JSON ({error})") from None
    if not isinstance(record, dict) or type(record.get("episode_index")) is not int:
        raise DataError(f"line {line_index + 1} has no episode_index")
    index, length, tasks = record["episode_index"], record.get("length"), record.get("tasks")
    if type(length) is not int or length < 1:
        raise DataError(f"episode {index} has length {length!r}")
    if not isinstance(tasks, list) or not tasks or not all(isinstance(task, str) for task in tasks):
        raise DataError(f"episode {index} has no tasks")
    record[SUBTASKS] = read_episode_subtasks(record)
    return record


def _build_rows(
    root: Path, records: list[dict[str, Any]], feature_keys: Mapping[str, str], chunk_size: int
) -> list[EpisodeIndexRow]:
    rows = []
    for record in records:
        index = record["episode_index"]
        path_fields = {"episode_index": index, "episode_chunk": index // chunk_size}
        rows.append(
            EpisodeIndexRow(
                index=index,
                meta=EpisodeMeta(
                    name=default_name(index),
                    length=record["length"],
                    instruction=record["tasks"][0],
                    subtasks=record[SUBTASKS],
                ),
                dataset_from_index=None,
                data_path=root / fmt.V21_DATA_PATH.format(**path_fields),
                videos={
                    view: (root / fmt.V21_VIDEO_PATH.format(**path_fields, video_key=key), 0.0)
                    for view, key in feature_keys.items()
                },
            )
        )
    return rows
