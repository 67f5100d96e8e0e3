"""Check the files of a LeRobot dataset; all issues are found in one pass."""

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from embodied_rm.data.dataset_files import is_inside
from embodied_rm.data.issues import DataIssue
from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.lerobot.episode_index import EpisodeIndexRow
from embodied_rm.data.lerobot.parquet import read_footer, read_parquet
from embodied_rm.data.video.decoder import FrameTimes, VideoDecoder
from embodied_rm.errors import DataError
from embodied_rm.types import equal_runs


class EpisodeRows(NamedTuple):
    """The rows of an episode: the first one in its data file and among all frames, and the tasks of all."""

    file_row: int
    dataset_index: int
    tasks: tuple[int, ...]
    """Task indices in the order of the frames, one per run of equal ones."""


CHECKED_COLUMNS = ("index", "episode_index", "frame_index", "timestamp", "task_index")
DERIVED_COLUMNS = ("index", "frame_index", "timestamp")
"""Columns that follow from the order of the rows, and that other writers leave out."""


def find_views(root: Path, features: Mapping[str, Any]) -> tuple[dict[str, str], list[DataIssue]]:
    """Return view name -> video feature with files, and an issue per feature without; `DataError` if there is none."""
    stored = fmt.video_keys(features)
    if not stored:
        raise DataError(f"{root}: the dataset has no videos; features: {', '.join(features)}")
    available = {view: key for view, key in stored.items() if fmt.has_videos(root, key)} or stored
    messages = [f"lists {key}, which has no videos: left out" for view, key in stored.items() if view not in available]
    return available, [DataIssue(file=root / fmt.INFO_PATH, message=message, episodes=()) for message in messages]


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
    root: Path,
    info: Mapping[str, Any],
    feature_keys: Mapping[str, str],
    rows: list[EpisodeIndexRow],
    num_tasks: float,
    decoder: VideoDecoder,
) -> tuple[dict[int, EpisodeRows], list[DataIssue]]:
    """Check the data and video files of all episodes; `feature_keys` maps views to features.

    Return episode index -> its first row, and the issues.
    """
    episode_rows: dict[int, EpisodeRows] = {}
    issues: list[DataIssue] = []
    starts = np.cumsum([0, *(row.meta.length for row in sorted(rows, key=lambda row: row.index))])
    first_indices = dict(zip(sorted(row.index for row in rows), starts.tolist(), strict=False))
    for path, file_rows in _group_by_file((row.data_path, row) for row in rows):
        found, file_issues = _check_data_file(root, path, file_rows, info, num_tasks, first_indices)
        episode_rows |= found
        issues += file_issues
    video_segments = [(path, (row, start, view)) for row in rows for view, (path, start) in row.videos.items()]
    for path, segments in _group_by_file(video_segments):
        feature = info["features"][feature_keys[segments[0][2]]]
        issues += _check_video_file(root, path, [segment[:2] for segment in segments], feature, info["fps"], decoder)
    return episode_rows, issues


def _group_by_file(items: Iterable[tuple[Path, Any]]) -> list[tuple[Path, list[Any]]]:
    sorted_items = sorted(items, key=lambda item: item[0])
    return [(path, [item for _, item in group]) for path, group in groupby(sorted_items, key=lambda item: item[0])]


def _check_data_file(
    root: Path,
    path: Path,
    rows: list[EpisodeIndexRow],
    info: Mapping[str, Any],
    num_tasks: float,
    first_indices: Mapping[int, int],
) -> tuple[dict[int, EpisodeRows], list[DataIssue]]:
    """Check the rows of one data file against the episode index.

    `first_indices`: episode index -> index of its first frame in the dataset, where neither the rows nor the episode
    index have it.
    """
    episode_names = [row.meta.name for row in rows]
    feature_keys = [key for key, feature in info["features"].items() if feature["dtype"] != "video"]
    try:
        if not is_inside(root, path):
            raise DataError(f"{path}: leads out of the dataset's folder")
        columns = read_footer(path).schema.to_arrow_schema().names
        missing = [key for key in {*feature_keys, *fmt.DEFAULT_FEATURES} - {*DERIVED_COLUMNS} if key not in columns]
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
        message = _find_row_error(row, row_indices, table, info["fps"], num_tasks)
        if message is None:
            derived = row.dataset_from_index if row.dataset_from_index is not None else first_indices[row.index]
            stored_index = table["index"][row_indices[0]] if "index" in table else derived
            tasks = tuple(task for task, _, _ in equal_runs(table["task_index"][row_indices]))
            episode_rows[row.index] = EpisodeRows(int(row_indices[0]), int(stored_index), tasks)
        else:
            issues.append(DataIssue(file=path, message=message, episodes=(row.meta.name,)))
    return episode_rows, issues


def _numeric_column(path: Path, column: pa.ChunkedArray) -> np.ndarray:
    """Convert a numeric column to float64 [rows], nan for missing values."""
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        raise DataError(f"{path}: a column holds {column.type} where numbers are expected")
    return column.cast(pa.float64()).to_numpy()


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
    expected = {"frame_index": (frame_indices, 0.0), "timestamp": (frame_indices / fps, 0.5 / fps)}
    expected["index"] = ((start or 0) + frame_indices, 0.0)
    for key, (values, tolerance) in expected.items():
        if key not in table:
            continue
        mismatches = np.flatnonzero(~(np.abs(table[key][row_indices] - values) <= tolerance))
        if len(mismatches):
            frame = mismatches[0]
            value = table[key][row_indices[frame]]
            return f"{key} is {value:g} in frame {frame} of episode {row.index}, expected {values[frame]:g}"
    task_indices = table["task_index"][row_indices]
    if not ((task_indices >= 0) & (task_indices < num_tasks)).all():
        return f"task_index of episode {row.index} names no task"
    return None


def _check_video_file(
    root: Path,
    path: Path,
    segments: list[tuple[EpisodeIndexRow, float]],
    feature: Mapping[str, Any],
    fps: float,
    decoder: VideoDecoder,
) -> list[DataIssue]:
    """Check the frames of one video file against the episode index."""
    episode_names = [row.meta.name for row, _ in segments]
    try:
        if not is_inside(root, path):
            raise DataError(f"{path}: leads out of the dataset's folder")
        video = decoder.probe(path)
        stated_size, size = _stated_size(feature), (video.height, video.width)
        if stated_size not in (None, size):
            stated = "x".join(map(str, stated_size))
            raise DataError(f"{path}: its images are {size[0]}x{size[1]}, info.json states {stated}")
    except DataError as error:
        return [DataIssue.from_error(error, episode_names, path)]
    issues = []
    for row, start in segments:
        message = _find_frame_error(row, start, video.timestamps, fps)
        if message is not None:
            issues.append(DataIssue(file=path, message=message, episodes=(row.meta.name,)))
    num_rows = sum(row.meta.length for row, _ in segments)
    # Only v2.1: in v3.0, extra frames may belong to an episode whose index row is not valid.
    single_episode = len(segments) == 1 and segments[0][0].dataset_from_index is None
    if single_episode and len(video) > num_rows and not issues:
        message = f"has {len(video)} frames, the only episode in it has {num_rows} rows"
        issues.append(DataIssue(file=path, message=message, episodes=tuple(episode_names)))
    return issues + _check_overlaps(path, segments, fps)


def _find_frame_error(row: EpisodeIndexRow, start: float, times: FrameTimes, fps: float) -> str | None:
    """Return the issue of an episode that starts at `start` (s) in a file with frames at `times` (s), or None."""
    length = row.meta.length
    begin, end = np.searchsorted(times + 0.5 / fps, [start, start + length / fps])
    if end - begin != length:
        return f"has {end - begin} frames of episode {row.index}, which has {length} rows"
    time_errors = np.abs(times[begin:end] - start - np.arange(length) / fps)
    if time_errors.max() > 0.5 / fps:
        frame = int(np.argmax(time_errors > 0.5 / fps))
        time = times[begin + frame]
        return f"frame {frame} of episode {row.index} is at {time:g} s, which does not fit {fps:g} frames per second"
    return None


def _check_overlaps(path: Path, segments: list[tuple[EpisodeIndexRow, float]], fps: float) -> list[DataIssue]:
    """Find episodes that share frames of a video file. The episode that does not start where its predecessors end is
    affected, or both.
    """
    issues = []
    expected_starts = np.cumsum([0, *(row.meta.length for row, _ in segments)]) / fps
    expected_start_by_index = {row.index: start for (row, _), start in zip(segments, expected_starts, strict=False)}
    for (first_row, start), (second_row, second_start) in pairwise(sorted(segments, key=lambda segment: segment[1])):
        if second_start < start + (first_row.meta.length - 0.5) / fps:
            pair = ((first_row, start), (second_row, second_start))
            misplaced = [row for row, t in pair if abs(t - expected_start_by_index[row.index]) > 0.5 / fps]
            names = tuple(row.meta.name for row in misplaced or (first_row, second_row))
            message = f"episodes {first_row.index} and {second_row.index} overlap"
            issues.append(DataIssue(file=path, message=message, episodes=names))
    return issues


def _stated_size(feature: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return (height, width) of a video feature in `info.json`, or None if the axes are not named."""
    names, shape = feature.get("names"), feature["shape"]
    if not isinstance(names, list) or not isinstance(shape, list) or len(names) != len(shape):
        return None
    if not {"height", "width"} <= {name for name in names if isinstance(name, str)}:
        return None
    return shape[names.index("height")], shape[names.index("width")]
