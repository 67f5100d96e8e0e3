"""The episode index of a LeRobot v3.0 dataset: the table `meta/episodes`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from embodied_rm.data.dataset_files import is_inside
from embodied_rm.data.issues import DataIssue
from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.lerobot.episode_index import (
    EpisodeIndexRow,
    VideoSegment,
    check_episode_list,
    default_name,
    find_unread,
    first_instruction,
)
from embodied_rm.data.lerobot.episode_subtasks import READ_COLUMNS, read_episode_subtasks
from embodied_rm.data.lerobot.parquet import is_list_type, iterate_names, read_footer, read_records
from embodied_rm.data.lerobot.success_columns import SUCCESS_COLUMNS, episode_success
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.errors import DataError

INDEX_COLUMNS = ("episode_index", "length", "dataset_from_index", "data/chunk_index", "data/file_index")
MAX_INDEX = 1 << 53  # frames, episodes and files are counted as floats, too


def read_rows(
    root: Path, info: Mapping[str, Any], video_keys: Mapping[str, str]
) -> tuple[list[EpisodeIndexRow], list[DataIssue]]:
    """Read the episode index: the valid rows, sorted by episode index, and the issues of the others.

    `video_keys`: view -> feature, of views that are stored as videos.
    """
    listing = root / "meta" / "episodes"
    paths = episode_files(root)
    if not paths:
        raise DataError(f"{listing}: no episodes are listed there (no chunk-*/file-*.parquet)")
    all_records, columns = list[dict[str, Any]](), set[str]()
    rows: list[EpisodeIndexRow] = []
    issues: list[DataIssue] = []
    invalid: set[int] = set()
    for path in paths:
        try:
            schema = read_footer(path).schema.to_arrow_schema()
            records = _read_records(path, schema, video_keys)
        except DataError as error:
            issues.append(DataIssue.from_error(error, (), path))
            continue
        all_records += [record for record, _ in records]
        columns.update(iterate_names(schema))
        for record, issue in records:
            index = len(rows) + len(invalid) if record["episode_index"] is None else record["episode_index"]
            try:
                if issue is not None:
                    raise DataError(issue)
                rows.append(_build_row(root, record, video_keys, info["fps"]))
            except DataError as error:
                invalid.add(index)
                issues.append(DataIssue(file=path, message=str(error), episodes=(_episode_name(record, index),)))
    if not rows and not invalid:
        raise DataError(str(issues[0]) if issues else f"{listing}: lists no episodes")
    issues += check_episode_list(listing, rows, invalid, info["total_episodes"])
    return sorted(rows, key=lambda row: row.index), issues + find_unread(listing, all_records, columns)


def episode_files(root: Path) -> list[Path]:
    """Return the files of the episode index, all inside the dataset."""
    paths = sorted((root / "meta" / "episodes").glob("chunk-*/file-*.parquet"))
    for path in paths:
        if not is_inside(root, path):
            raise DataError(f"{path}: leads out of the dataset's folder")
    return paths


def count_tasks(root: Path) -> int:
    """Count the listed instructions."""
    return read_footer(root / fmt.TASKS_PATH).num_rows


def _read_records(
    path: Path, schema: pa.Schema, video_keys: Mapping[str, str]
) -> list[tuple[dict[str, Any], str | None]]:
    required = _required_columns(video_keys)
    for name, type_name in required.items():
        if (count := schema.names.count(name)) != 1:
            raise DataError(f"{path}: column {name} is {f'there {count} times' if count else 'missing'}")
        if not _has_type(schema.field(name).type, type_name):
            raise DataError(f"{path}: column {name} holds {schema.field(name).type}, {type_name} was expected")
    ends = [f"videos/{key}/to_timestamp" for key in video_keys.values()]
    columns = [name for name in schema.names if is_needed(name) or name in (*required, *ends)]
    return read_records(path, columns)


def is_needed(name: str) -> bool:
    """Return whether a column of `meta/episodes` is read where it is stored, beside the required ones."""
    return name in {fmt.NAME_KEY, *SUCCESS_COLUMNS, *READ_COLUMNS} or name.startswith(fmt.METADATA_PREFIX)


def _has_type(arrow_type: pa.DataType, type_name: str) -> bool:
    if type_name == "int64":
        return pa.types.is_integer(arrow_type)
    if type_name == "double":
        return pa.types.is_floating(arrow_type)
    return is_list_type(arrow_type) and arrow_type.value_type in (pa.string(), pa.large_string())


def _required_columns(video_keys: Mapping[str, str]) -> dict[str, str]:
    """Required columns of `meta/episodes` -> their type."""
    int_columns = [
        *INDEX_COLUMNS,
        *(f"videos/{key}/{part}_index" for key in video_keys.values() for part in ("chunk", "file")),
    ]
    float_columns = [f"videos/{key}/from_timestamp" for key in video_keys.values()]
    return dict.fromkeys(int_columns, "int64") | dict.fromkeys(float_columns, "double") | {"tasks": "list<string>"}


def _build_row(root: Path, record: Mapping[str, Any], video_keys: Mapping[str, str], fps: float) -> EpisodeIndexRow:
    """Build the row of one episode. A `DataError` holds only a clause with the issue."""
    index = record["episode_index"]
    missing = [key for key in _required_columns(video_keys) if record[key] is None]
    if missing or not record["tasks"]:
        raise DataError(f"episode {index} has no {(missing or ['tasks'])[0]}")
    for key in INDEX_COLUMNS:
        if record[key] > MAX_INDEX:
            raise DataError(f"episode {index} has {key} {record[key]}")
    if record["length"] < 1:
        raise DataError(f"episode {index} has length {record['length']}")
    videos = {
        view: VideoSegment(
            file_path(root, record, f"videos/{key}", fmt.VIDEO_PATH, key),
            record[f"videos/{key}/from_timestamp"],
            record.get(f"videos/{key}/to_timestamp"),
        )
        for view, key in video_keys.items()
    }
    return EpisodeIndexRow(
        index=index,
        meta=parse_meta(record, fps),
        dataset_from_index=record["dataset_from_index"],
        data_path=file_path(root, record, "data", fmt.DATA_PATH),
        videos=videos,
    )


def file_path(root: Path, record: Mapping[str, Any], prefix: str, template: str, video_key: str = "") -> Path:
    """Return a file of an episode, whose row of `meta/episodes` has the indices in columns of a prefix."""
    indices = {key: record[f"{prefix}/{key}"] for key in ("chunk_index", "file_index")}
    return root / template.format(**indices, video_key=video_key)


def _episode_name(record: Mapping[str, Any], index: int) -> str:
    """Return the stored name of an episode, or its default name."""
    name = record.get(fmt.NAME_KEY)
    return name if isinstance(name, str) and name else default_name(index)


def parse_meta(record: Mapping[str, Any], fps: float) -> EpisodeMeta:
    """Parse the metadata in a row of `meta/episodes`. A `DataError` holds only a clause with the issue."""
    prefix = fmt.METADATA_PREFIX
    texts = {key: value for key, value in record.items() if isinstance(value, str)}
    return EpisodeMeta(
        name=_episode_name(record, record["episode_index"]),
        length=record["length"],
        instruction=first_instruction(record["tasks"]),
        success=episode_success(record),
        subtasks=read_episode_subtasks(record, fps),
        metadata={k.removeprefix(prefix): text for k, text in texts.items() if k.startswith(prefix)},
    )
