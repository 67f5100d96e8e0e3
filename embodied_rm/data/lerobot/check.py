"""Check the files of a LeRobot dataset; all issues are found in one pass."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from embodied_rm.data.dataset_files import is_inside
from embodied_rm.data.issues import DataIssue
from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.lerobot.episode_index import EpisodeIndexRow, VideoSegment
from embodied_rm.data.lerobot.frame_times import (
    TOLERANCE_FRAMES,
    Drift,
    drift_issues,
    drift_s,
    find_clock_error,
    is_regular,
)
from embodied_rm.data.lerobot.image_features import ImageReader, check_images
from embodied_rm.data.lerobot.parquet import flatten_singletons, read_footer, read_parquet
from embodied_rm.data.lerobot.video_check import check_video_file
from embodied_rm.data.video.decoder import FrameTimes, VideoDecoder
from embodied_rm.errors import DataError
from embodied_rm.types import equal_runs

CHECKED_COLUMNS = ("index", "episode_index", "frame_index", "timestamp", "task_index")
DERIVED_COLUMNS = ("index", "frame_index", "timestamp")
"""Columns that follow from the order of the rows, and that other writers leave out."""
UNITS_PER_S = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
"""Unit of a parquet type of times -> units per second."""
OPTIONAL_TYPES = (fmt.VIDEO, fmt.IMAGE, fmt.LANGUAGE)
"""Types of features that a data file may lack."""


class EpisodeRows(NamedTuple):
    """The rows of an episode: the first one in its data file and among all frames, and the tasks of all."""

    file_row: int
    dataset_index: int
    tasks: tuple[int, ...]
    """Task indices in the order of the frames, one per run of equal ones."""
    times: FrameTimes | None
    """Times of the rows (s), which may start anywhere; None: those of their indices."""


class FileCheck(NamedTuple):
    """What the files of a dataset hold; an episode with an issue may be missing."""

    rows: dict[int, EpisodeRows]  # episode index -> its rows
    segments: dict[int, dict[str, VideoSegment]]  # episode index -> view -> its frames
    issues: list[DataIssue]


@dataclass(frozen=True, kw_only=True)
class StoredDataset:
    """A dataset as `info.json` describes it, and the readers of its files."""

    root: Path
    features: Mapping[str, Any]
    fps: float
    video_keys: Mapping[str, str]  # view -> feature, of views that are stored as videos
    image_keys: Mapping[str, str]  # the same of views that are stored in the data files
    decoder: VideoDecoder
    images: ImageReader

    def required_columns(self) -> set[str]:
        """Return the columns that every data file must have."""
        numeric = {key for key, feature in self.features.items() if feature["dtype"] not in OPTIONAL_TYPES}
        return {*numeric, *fmt.DEFAULT_FEATURES, *self.image_keys.values()} - {*DERIVED_COLUMNS}


def check_totals(
    root: Path, info: Mapping[str, Any], rows: list[EpisodeIndexRow], count_tasks: Callable[[Path], int]
) -> tuple[float, list[DataIssue]]:
    """Compare the totals in `info.json` with the valid rows of the episode index. Mismatches exclude no episode.

    Return the number of listed instructions (infinite if unknown), and the issues.
    """
    path = root / fmt.INFO_PATH
    issues = []
    num_frames = sum(row.meta.length for row in rows)
    if len(rows) == info["total_episodes"] and num_frames != info["total_frames"]:
        message = f"states {info['total_frames']} frames, the episodes have {num_frames}"
        issues.append(DataIssue(file=path, message=message, episodes=()))
    try:
        num_tasks = count_tasks(root)
    except DataError as error:
        return np.inf, [*issues, DataIssue(file=root / "meta", message=str(error), episodes=())]
    if info.get("total_tasks", num_tasks) != num_tasks:
        message = f"states {info['total_tasks']} tasks, {num_tasks} are listed"
        issues.append(DataIssue(file=path, message=message, episodes=()))
    return num_tasks, issues


def check_files(
    dataset: StoredDataset, rows: Sequence[EpisodeIndexRow], num_tasks: float, max_drift_s: float | None
) -> FileCheck:
    """Check the data files, images and videos of all episodes.

    Args:
        dataset: The dataset.
        rows: Its episode index, without duplicates.
        num_tasks: Number of listed instructions.
        max_drift_s: Largest deviation of recorded times from the frame rate (s); None: any.
    """
    episode_rows: dict[int, EpisodeRows] = {}
    segments: dict[int, dict[str, VideoSegment]] = {row.index: {} for row in rows}
    issues: list[DataIssue] = []
    drifts: list[Drift] = []
    starts = np.cumsum([0, *(row.meta.length for row in sorted(rows, key=lambda row: row.index))])
    first_indices = dict(zip(sorted(row.index for row in rows), starts.tolist(), strict=False))
    for path, file_rows in _group_by_file((row.data_path, row) for row in rows):
        found, file_issues = _check_data_file(dataset, path, file_rows, num_tasks, first_indices)
        episode_rows |= found
        issues += file_issues
        drifts += _find_clock_drifts(path, file_rows, found, dataset.fps)
        found_rows = [(row, found[row.index].file_row) for row in file_rows if row.index in found]
        for key in dataset.image_keys.values():
            feature = dataset.features[key]
            issues += check_images(dataset.root, path, key, feature, found_rows, dataset.images)
    clocks = {index: found.times - found.times[0] for index, found in episode_rows.items() if found.times is not None}
    for view, key in dataset.video_keys.items():
        feature = key, dataset.features[key]
        for path, file_rows in _group_by_file((row.videos[view].path, row) for row in rows):
            stated = [(row, row.videos[view]) for row in file_rows]
            check = check_video_file(dataset.root, path, stated, clocks, feature, dataset.fps, dataset.decoder)
            for index, segment in check.segments.items():
                segments[index][view] = segment
            issues += check.issues
            drifts += check.drifts
    return FileCheck(episode_rows, segments, issues + drift_issues(drifts, len(rows), max_drift_s))


def _group_by_file(items: Iterable[tuple[Path, EpisodeIndexRow]]) -> list[tuple[Path, list[EpisodeIndexRow]]]:
    sorted_items = sorted(items, key=lambda item: item[0])
    return [(path, [row for _, row in group]) for path, group in groupby(sorted_items, key=lambda item: item[0])]


def _find_clock_drifts(
    path: Path, rows: Sequence[EpisodeIndexRow], found: Mapping[int, EpisodeRows], fps: float
) -> Iterator[Drift]:
    """Yield the deviations of the times of rows, which may start anywhere."""
    for row in rows:
        times = found[row.index].times if row.index in found else None
        if times is not None and (duration_s := drift_s(times, fps)) > TOLERANCE_FRAMES / fps:
            yield Drift("timestamp", f"{fps:g} frames per second", path, row.meta.name, duration_s)


def _check_data_file(
    dataset: StoredDataset,
    path: Path,
    rows: Sequence[EpisodeIndexRow],
    num_tasks: float,
    first_indices: Mapping[int, int],
) -> tuple[dict[int, EpisodeRows], list[DataIssue]]:
    """Check the rows of one data file against the episode index.

    `first_indices`: episode index -> index of its first frame in the dataset, where neither the rows nor the episode
    index have it.
    """
    episode_names = [row.meta.name for row in rows]
    try:
        if not is_inside(dataset.root, path):
            raise DataError(f"{path}: leads out of the dataset's folder")
        columns = read_footer(path).schema.to_arrow_schema().names
        missing = [key for key in dataset.required_columns() if key not in columns]
        if missing:
            raise DataError(f"{path}: column {', '.join(sorted(missing))} is missing")
        checked = [key for key in CHECKED_COLUMNS if key in columns]
        stored = read_parquet(path, checked)
        table = {key: _numeric_column(path, stored[key]) for key in checked}
    except DataError as error:
        return {}, [DataIssue.from_error(error, episode_names, path)]
    episode_rows, issues = {}, []
    for row in rows:
        row_indices = np.flatnonzero(table["episode_index"] == row.index)
        message = _find_row_error(row, row_indices, table, dataset.fps, num_tasks)
        if message is None:
            derived = row.dataset_from_index if row.dataset_from_index is not None else first_indices[row.index]
            stored_index = table["index"][row_indices[0]] if "index" in table else derived
            tasks = tuple(task for task, _, _ in equal_runs(table["task_index"][row_indices]))
            times = table["timestamp"][row_indices] if "timestamp" in table else None
            times = None if times is None or is_regular(times, dataset.fps) else times
            episode_rows[row.index] = EpisodeRows(int(row_indices[0]), int(stored_index), tasks, times)
        else:
            issues.append(DataIssue(file=path, message=message, episodes=(row.meta.name,)))
    return episode_rows, issues


def _numeric_column(path: Path, column: pa.ChunkedArray) -> np.ndarray:
    """Convert a column of numbers, of times (s), or of lists of one, to float64 [rows], nan for missing values."""
    column, scale = flatten_singletons(column), 1.0
    if pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type):
        column, scale = column.cast(pa.int64()), UNITS_PER_S[column.type.unit]
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        raise DataError(f"{path}: a column holds {column.type} where numbers are expected")
    return column.cast(pa.float64(), safe=False).to_numpy() / scale


def _find_row_error(
    row: EpisodeIndexRow, row_indices: np.ndarray, table: Mapping[str, np.ndarray], fps: float, num_tasks: float
) -> str | None:
    """Return the issue of the rows of an episode, or None."""
    length = row.meta.length
    if len(row_indices) != length:
        return f"has {len(row_indices)} rows of episode {row.index}, which has length {length}"
    if row_indices[-1] - row_indices[0] + 1 != length:
        return f"the rows of episode {row.index} do not follow each other"
    frame_indices = np.arange(length)
    start = row.dataset_from_index
    if start is None and "index" in table:
        start = table["index"][row_indices[0]]
    for key, values in (("frame_index", frame_indices), ("index", (start or 0) + frame_indices)):
        if key not in table:
            continue
        mismatches = np.flatnonzero(table[key][row_indices] != values)
        if len(mismatches):
            frame = mismatches[0]
            value = table[key][row_indices[frame]]
            return f"{key} is {value:g} in frame {frame} of episode {row.index}, expected {values[frame]:g}"
    clock_error = find_clock_error(table["timestamp"][row_indices], fps) if "timestamp" in table else None
    if clock_error is not None:
        return f"{clock_error} of episode {row.index}"
    task_indices = table["task_index"][row_indices]
    if not ((task_indices >= 0) & (task_indices < num_tasks) & (task_indices % 1 == 0)).all():
        return f"task_index of episode {row.index} names no task"
    return None
