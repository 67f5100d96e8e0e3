"""LeRobot's file formats: paths, features, and the columns that this package adds.

Source: `lerobot` 0.4 for v3.0 (`lerobot/datasets/utils.py`: several episodes per file), and its
`convert_dataset_v21_to_v30.py` for v2.1 (one file per episode). Numbers are stored as parquet, images as mp4.
"""

import json
import re
from collections.abc import Mapping, Sequence
from glob import escape
from pathlib import Path
from typing import Any

import pyarrow as pa

from embodied_rm.data.dataset_files import read_json
from embodied_rm.data.names import check_name, is_frame_rate
from embodied_rm.errors import DataError
from embodied_rm.types import Subtask

CODEBASE_VERSION, MAJOR_VERSION = "v3.0", 3
INFO_PATH = "meta/info.json"
STATS_PATH = "meta/stats.json"
TASKS_PATH = "meta/tasks.parquet"
EPISODES_PATH = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
V21_EPISODES_PATH, V21_TASKS_PATH = "meta/episodes.jsonl", "meta/tasks.jsonl"
V21_DATA_PATH = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
V21_VIDEO_PATH = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
PATH_TEMPLATES = {
    2: {"data_path": V21_DATA_PATH, "video_path": V21_VIDEO_PATH},
    MAJOR_VERSION: {"data_path": DATA_PATH, "video_path": VIDEO_PATH},
}
"""Path templates that `meta/info.json` must contain, per readable major version; other paths could lead out of the
folder.

v2.0 differs from v2.1 only in its statistics, which are not read, and v3.1 from v3.0 only in columns of language.
LeRobot reads every minor version of its major version, too.
"""
VERSION_PATTERN = re.compile(r"v?(\d+)\.\d+(\.\d+)*")
FILES_PER_CHUNK = 1000
DATA_FILE_MB = 100
VIDEO_FILE_MB = 200

STATE_KEY, ACTION_KEY = "observation.state", "action"
IMAGE_PREFIX = "observation.images."
VIDEO, IMAGE, LANGUAGE = "video", "image", "language"
"""Types of features: files of videos, encoded images in the data files, and LeRobot's columns of language."""
SUBTASK_KEY, PROGRESS_KEY = "subtask_index", "progress"
"""Columns added by this package, per frame: index of the subtask in its episode (-1: none), and true task progress."""
NAME_KEY, SUCCESS_KEY = "name", "success"
SUBTASK_COLUMNS = ("subtask_names", "subtask_start_frames", "subtask_end_frames")
METADATA_PREFIX = "text/"
"""Columns added by this package, per episode. End frames are excluded. `METADATA_PREFIX` + key holds
`Episode.metadata[key]`.
"""

Feature = dict[str, Any]


def view_key(view: str) -> str:
    """Return the video feature of a view."""
    return IMAGE_PREFIX + view


def view_name(key: str) -> str:
    """Return the view of a video feature, also for third-party names ("observation.image" is view "image").

    One prefix is removed, so that a view with such a name keeps it when it is written and read back.
    """
    return key.removeprefix(IMAGE_PREFIX if key.startswith(IMAGE_PREFIX) else "observation.")


def scalar_feature(dtype: str) -> Feature:
    """Return a feature with one number per frame."""
    return {"dtype": dtype, "shape": [1], "names": None}


def vector_feature(size: int, names: Sequence[str] | None) -> Feature:
    """Return a feature with `size` float32 numbers per frame."""
    return {"dtype": "float32", "shape": [size], "names": None if names is None else list(names)}


def subtask_values(subtasks: Sequence[Subtask]) -> dict[str, list[Any]]:
    """Return the values of `SUBTASK_COLUMNS` of an episode."""
    rows = [(subtask.name, subtask.start, subtask.end) for subtask in subtasks]
    return {key: [row[i] for row in rows] for i, key in enumerate(SUBTASK_COLUMNS)}


def video_feature(height: int, width: int, fps: float) -> Feature:
    """Return a feature stored as H.264 mp4."""
    stream = {"height": height, "width": width, "codec": "h264", "pix_fmt": "yuv420p", "is_depth_map": False}
    stream |= {"fps": fps, "channels": 3}
    info = {**{f"video.{key}": value for key, value in stream.items()}, "has_audio": False}
    return {"dtype": "video", "shape": [height, width, 3], "names": ["height", "width", "channels"], "info": info}


INT_FEATURES = ("frame_index", "episode_index", "index", "task_index")
DEFAULT_FEATURES: Mapping[str, Feature] = {
    "timestamp": scalar_feature("float32"),
    **{key: scalar_feature("int64") for key in INT_FEATURES},
}
"""Features of every v3.0 dataset, one number per frame."""


def column_type(feature: Feature) -> pa.DataType:
    """Return the parquet type of a numeric feature: a number, or a list of fixed length."""
    number_type = pa.type_for_alias(feature["dtype"])
    return number_type if feature["shape"] == [1] else pa.list_(number_type, feature["shape"][0])


def tasks_table(instructions: Sequence[str]) -> pa.Table:
    """Return the content of `tasks.parquet`; LeRobot reads it with pandas and expects the instruction as the index."""
    table = pa.table({"task_index": pa.array(range(len(instructions)), pa.int64()), "task": list(instructions)})
    columns = [
        {"field_name": name, "name": name, "pandas_type": pandas_type, "numpy_type": numpy_type, "metadata": None}
        for name, pandas_type, numpy_type in (("task_index", "int64", "int64"), ("task", "unicode", "object"))
    ]
    metadata = {"index_columns": ["task"], "column_indexes": [], "columns": columns, "pandas_version": "2.0.0"}
    return table.replace_schema_metadata({"pandas": json.dumps(metadata)})


def read_info(root: Path) -> dict[str, Any]:
    """Read `meta/info.json` and check the keys that this package uses."""
    path = root / INFO_PATH
    info: dict[str, Any] = read_json(path, "dataset description", dict)
    if major_version(info) not in PATH_TEMPLATES:
        version, readable = info.get("codebase_version"), " and ".join(f"v{major}.x" for major in PATH_TEMPLATES)
        raise DataError(f"{path}: the dataset has LeRobot version {version!r}; only {readable} can be read")
    expected_types = {"total_episodes": int, "total_frames": int, "fps": int | float, "features": dict}
    for key, expected_type in expected_types.items():
        if not isinstance(info.get(key), expected_type) or isinstance(info[key], bool):
            raise DataError(f"{path}: {key!r} is {info.get(key)!r}")
    if "total_tasks" in info and type(info["total_tasks"]) is not int:
        raise DataError(f"{path}: 'total_tasks' is {info['total_tasks']!r}")
    if not is_frame_rate(info["fps"]):
        raise DataError(f"{path}: fps is {info['fps']}")
    for key, feature in info["features"].items():
        if not isinstance(feature, dict) or not isinstance(feature.get("dtype"), str) or "shape" not in feature:
            raise DataError(f"{path}: feature {key!r} has no dtype and shape")
        if feature["dtype"] in (VIDEO, IMAGE):
            check_name(key, f"feature of {path}")
    has_video_features = any(feature["dtype"] == VIDEO for feature in info["features"].values())
    for key, template in PATH_TEMPLATES[major_version(info)].items():
        if info.get(key) != template and (key != "video_path" or has_video_features):
            raise DataError(f"{path}: {key!r} is {info.get(key)!r}; only {template!r} can be read")
    return info


def major_version(info: Mapping[str, Any]) -> int:
    """Return the major version of LeRobot's format, -1 if `info.json` states none."""
    match = VERSION_PATTERN.fullmatch(str(info.get("codebase_version")))
    return -1 if match is None else int(match[1])


def view_features(features: Mapping[str, Any]) -> dict[str, str]:
    """Return view name -> feature for every color video and every feature of color images."""
    names: dict[str, str] = {}
    for key, feature in features.items():
        if feature["dtype"] in (VIDEO, IMAGE) and not _is_depth(feature):
            names[key if view_name(key) in names else view_name(key)] = key
    return names


def stated_size(feature: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return (height, width) of a feature in `info.json`, or None if the axes are not named."""
    names, shape = feature.get("names"), feature["shape"]
    if not isinstance(names, list) or not isinstance(shape, list) or len(names) != len(shape):
        return None
    if not {"height", "width"} <= {name for name in names if isinstance(name, str)}:
        return None
    return shape[names.index("height")], shape[names.index("width")]


def has_videos(root: Path, key: str) -> bool:
    """Return whether a video feature has a folder of files, of version 3.0 or 2.1."""
    return any(
        path.is_dir() for pattern in (escape(key), f"chunk-*/{escape(key)}") for path in (root / "videos").glob(pattern)
    )


def _is_depth(feature: Mapping[str, Any]) -> bool:
    infos = [feature.get(key) for key in ("info", "video_info")]
    return any(
        isinstance(info, dict) and bool(info.get("video.is_depth_map") or info.get("is_depth_map")) for info in infos
    )
