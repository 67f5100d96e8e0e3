"""Write a LeRobot v3.0 dataset episode by episode; the target folder appears only when it is complete."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from embodied_rm.data.dataset_files import check_utf8
from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.lerobot.chunk_writers import ParquetChunkWriter, VideoChunkWriter
from embodied_rm.data.lerobot.stats import FeatureStats, aggregate_stats, column_stats, image_stats
from embodied_rm.data.names import check_name
from embodied_rm.errors import DataError
from embodied_rm.types import Episode, IntArray, Subtask


@dataclass(frozen=True, kw_only=True)
class DatasetSchema:
    """Properties that all episodes of a dataset share."""

    views: dict[str, tuple[int, int]]  # view name -> (height, width)
    fps: float
    state: int | None  # size of the state; None: not recorded
    action: int | None
    progress: bool

    @classmethod
    def from_episode(cls, episode: Episode) -> DatasetSchema:
        return cls(
            views={name: (frames.shape[1], frames.shape[2]) for name, frames in sorted(episode.views.items())},
            fps=episode.fps,
            state=None if episode.state is None else episode.state.shape[1],
            action=None if episode.action is None else episode.action.shape[1],
            progress=episode.progress is not None,
        )

    def features(self, state_names: Sequence[str] | None, action_names: Sequence[str] | None) -> dict[str, fmt.Feature]:
        """Return the features of `info.json`, including videos."""
        features = {fmt.view_key(name): fmt.video_feature(*size, fps=self.fps) for name, size in self.views.items()}
        if self.state is not None:
            features[fmt.STATE_KEY] = fmt.vector_feature(self.state, state_names)
        if self.action is not None:
            features[fmt.ACTION_KEY] = fmt.vector_feature(self.action, action_names)
        if self.progress:
            features[fmt.PROGRESS_KEY] = fmt.scalar_feature("float32")
        return {**features, fmt.SUBTASK_KEY: fmt.scalar_feature("int64"), **fmt.DEFAULT_FEATURES}


class DatasetWriter:
    """Writes a dataset: `with DatasetWriter(path) as writer: writer.add(episode)`.

    The first episode determines views, image sizes, fps, the sizes of state and action, and whether progress is stored.
    An episode that does not fit it, an existing `path` and a dataset without episodes raise `DataError`. Files are
    written to a temporary folder next to the target and renamed at the end: an interrupted writer leaves no dataset.

    `state_names` and `action_names` name the entries of the two vectors. An episode starts a new file once the last one
    has `data_file_mb` or `video_file_mb`.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        robot_type: str = "unknown",
        state_names: Sequence[str] | None = None,
        action_names: Sequence[str] | None = None,
        data_file_mb: float = fmt.DATA_FILE_MB,
        video_file_mb: float = fmt.VIDEO_FILE_MB,
    ) -> None:
        self.path = Path(path)
        check_utf8(self.path)
        self._check_not_exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._partial_folder = self.path.with_name(f".{self.path.name}.partial-{uuid.uuid4().hex[:8]}")
        self._partial_folder.mkdir()
        self._robot_type, self._feature_names = robot_type, (state_names, action_names)
        self._data_file_mb, self._video_file_mb = data_file_mb, video_file_mb
        self._schema: DatasetSchema | None = None
        self._features: dict[str, fmt.Feature] = {}
        self._data_writer: ParquetChunkWriter
        self._video_writers: dict[str, VideoChunkWriter] = {}
        self._task_indices: dict[str, int] = {}
        self._episode_rows: list[dict[str, Any]] = []
        self._stats: dict[str, FeatureStats] = {}
        self._num_frames = 0

    def __len__(self) -> int:
        """Number of episodes added so far."""
        return len(self._episode_rows)

    def add(self, episode: Episode) -> None:
        """Append one episode, or write nothing if it does not fit."""
        schema = DatasetSchema.from_episode(episode)
        _check_episode(episode, schema, self._schema or schema, {row["name"] for row in self._episode_rows})
        if self._schema is None:
            _check_feature_names(self._feature_names, schema)
            self._schema, self._features = schema, schema.features(*self._feature_names)
            self._open_writers(schema)
        columns = self._build_columns(episode)
        stats = {key: column_stats(column) for key, column in columns.items()}
        stats |= {fmt.view_key(name): image_stats(frames) for name, frames in episode.views.items()}
        data = self._data_writer.add(columns)
        videos = {fmt.view_key(name): self._video_writers[name].add(frames) for name, frames in episode.views.items()}
        row = _episode_row(episode, len(self), self._num_frames, data, videos)
        self._episode_rows.append(row | _flatten("stats", _to_lists(stats)))
        for key, part in stats.items():
            self._stats[key] = aggregate_stats([self._stats[key], part]) if key in self._stats else part
        self._num_frames += len(episode)

    def close(self) -> None:
        """Finish the files and rename the folder."""
        if self._schema is None:
            self.abandon()
            raise DataError(f"{self.path}: no episode was recorded, so no dataset was written")
        self._data_writer.close()
        for writer in self._video_writers.values():
            writer.close()
        self._write_meta(self._schema)
        self._check_not_exists()
        self._partial_folder.rename(self.path)

    def abandon(self) -> None:
        """Delete everything written so far."""
        for writer in self._video_writers.values():
            writer.abandon()
        shutil.rmtree(self._partial_folder, ignore_errors=True)

    def __enter__(self) -> DatasetWriter:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *exc_info: object) -> None:
        if exc_type is not None:
            self.abandon()
            return
        try:
            self.close()
        except BaseException:
            self.abandon()
            raise

    def _check_not_exists(self) -> None:
        if self.path.exists():
            raise DataError(f"{self.path}: already exists; datasets are never overwritten, choose another folder")

    def _open_writers(self, dataset_schema: DatasetSchema) -> None:
        columns = {key: feature for key, feature in self._features.items() if feature["dtype"] != "video"}
        schema = pa.schema({key: fmt.column_type(feature) for key, feature in columns.items()})
        self._data_writer = ParquetChunkWriter(self._partial_folder, schema, self._data_file_mb)
        folder, fps, file_mb = self._partial_folder, dataset_schema.fps, self._video_file_mb
        for name, size in dataset_schema.views.items():
            self._video_writers[name] = VideoChunkWriter(folder, fmt.view_key(name), fps, size, file_mb)

    def _build_columns(self, episode: Episode) -> dict[str, np.ndarray]:
        """Build the rows of one episode in the data file, by feature."""
        length = len(episode)
        task_index = self._task_indices.setdefault(episode.instruction, len(self._task_indices))
        columns: dict[str, np.ndarray | None] = {
            fmt.STATE_KEY: episode.state,
            fmt.ACTION_KEY: episode.action,
            fmt.PROGRESS_KEY: episode.progress,
            fmt.SUBTASK_KEY: subtask_column(episode.subtasks, length),
            "timestamp": (np.arange(length) / episode.fps).astype(np.float32),
            "frame_index": np.arange(length),
            "episode_index": np.full(length, len(self)),
            "index": np.arange(self._num_frames, self._num_frames + length),
            "task_index": np.full(length, task_index),
        }
        return {key: column for key, column in columns.items() if column is not None}

    def _write_meta(self, schema: DatasetSchema) -> None:
        meta_folder = self._partial_folder / "meta"
        episodes_path = self._partial_folder / fmt.EPISODES_PATH.format(chunk_index=0, file_index=0)
        episodes_path.parent.mkdir(parents=True)
        pq.write_table(_episodes_table(self._episode_rows), episodes_path)
        pq.write_table(fmt.tasks_table(list(self._task_indices)), meta_folder / "tasks.parquet")
        (meta_folder / "stats.json").write_text(json.dumps(_to_lists(self._stats), indent=2, allow_nan=False))
        (meta_folder / "info.json").write_text(json.dumps(self._build_info(schema), indent=2, allow_nan=False))

    def _build_info(self, schema: DatasetSchema) -> dict[str, Any]:
        return {
            "codebase_version": fmt.CODEBASE_VERSION,
            "robot_type": self._robot_type,
            "total_episodes": len(self),
            "total_frames": self._num_frames,
            "total_tasks": len(self._task_indices),
            "chunks_size": fmt.FILES_PER_CHUNK,
            "data_files_size_in_mb": self._data_file_mb,
            "video_files_size_in_mb": self._video_file_mb,
            "fps": int(schema.fps) if float(schema.fps).is_integer() else schema.fps,
            "splits": {"train": f"0:{len(self)}"},
            "data_path": fmt.DATA_PATH,
            "video_path": fmt.VIDEO_PATH,
            "features": self._features,
        }


def subtask_column(subtasks: Sequence[Subtask], length: int) -> IntArray:
    """Return int64 [T]: index of the subtask of each frame, -1 for none."""
    column = np.full(length, -1, np.int64)
    for index, subtask in enumerate(subtasks):
        column[subtask.start : subtask.end] = index
    return column


def _check_feature_names(names: tuple[Sequence[str] | None, Sequence[str] | None], schema: DatasetSchema) -> None:
    for feature, feature_names, size in (("state", names[0], schema.state), ("action", names[1], schema.action)):
        if feature_names is not None and len(feature_names) != size:
            raise DataError(f"{feature}_names has {len(feature_names)} names, the recorded {feature} has size {size}")


def _check_episode(episode: Episode, schema: DatasetSchema, expected: DatasetSchema, used_names: set[str]) -> None:
    """Raise `DataError` for an episode that does not fit the dataset, or contains non-finite numbers."""
    for view in schema.views:
        check_name(view, f"view of {episode.name}")
    for field in ("views", "fps", "state", "action", "progress"):
        actual, first = getattr(schema, field), getattr(expected, field)
        if actual != first:
            raise DataError(f"{episode.name}: {field} is {actual}, in the dataset's first episode it is {first}")
    if episode.name in used_names:
        raise DataError(f"{episode.name}: the dataset already has an episode of that name")
    for field in ("state", "action", "progress"):
        column = getattr(episode, field)
        if column is not None and not np.isfinite(column).all():
            frame = int(np.argwhere(~np.isfinite(column))[0][0])
            raise DataError(f"{episode.name}: {field} is not finite at frame {frame}")


def _episode_row(
    episode: Episode, index: int, from_index: int, data: dict[str, Any], videos: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Build the row of one episode in `meta/episodes`, without statistics."""
    return {
        "episode_index": index,
        "tasks": [episode.instruction],
        "length": len(episode),
        "dataset_from_index": from_index,
        "dataset_to_index": from_index + len(episode),
        **{f"data/{key}": value for key, value in data.items()},
        **_flatten("videos", videos),
        "meta/episodes/chunk_index": 0,
        "meta/episodes/file_index": 0,
        fmt.NAME_KEY: episode.name,
        fmt.SUCCESS_KEY: episode.success,
        **fmt.subtask_values(episode.subtasks),
        **{fmt.METADATA_PREFIX + key: value for key, value in episode.metadata.items()},
    }


def _flatten(prefix: str, groups: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{prefix}/{name}/{key}": value for name, group in groups.items() for key, value in group.items()}


def _to_lists(stats: Mapping[str, FeatureStats]) -> dict[str, dict[str, Any]]:
    return {key: {name: value.tolist() for name, value in parts.items()} for key, parts in stats.items()}


def _episodes_table(rows: list[dict[str, Any]]) -> pa.Table:
    """Build `meta/episodes`; a text column that an episode lacks is null in its row."""
    names = list(dict.fromkeys(key for row in rows for key in row))
    types = {key: pa.list_(pa.int64()) for key in fmt.SUBTASK_COLUMNS}
    types |= {fmt.SUCCESS_KEY: pa.bool_(), fmt.SUBTASK_COLUMNS[0]: pa.list_(pa.string())}
    return pa.table({name: pa.array([row.get(name) for row in rows], types.get(name)) for name in names})
