"""Writes a LeRobot v3.0 dataset, episode by episode; it appears under its name only when it is whole."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.lerobot.shelves import DataShelf, VideoShelf
from embodied_rm.data.lerobot.stats import Stats, column_stats, image_stats, pooled
from embodied_rm.errors import DataError
from embodied_rm.types import Episode, IntArray, Step


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What all episodes of a dataset have in common."""

    views: dict[str, tuple[int, int]]
    """View name -> (height, width)."""
    fps: float
    state: int | None
    """Size of the state, None: not recorded."""
    action: int | None
    progress: bool

    @classmethod
    def of(cls, episode: Episode) -> Layout:
        return cls(
            views={name: (frames.shape[1], frames.shape[2]) for name, frames in sorted(episode.views.items())},
            fps=episode.fps,
            state=None if episode.state is None else episode.state.shape[1],
            action=None if episode.action is None else episode.action.shape[1],
            progress=episode.progress is not None,
        )

    def features(self, state_names: Sequence[str] | None, action_names: Sequence[str] | None) -> dict[str, fmt.Feature]:
        """The features of `info.json`, videos included."""
        features = {fmt.view_key(name): fmt.video(*size, fps=self.fps) for name, size in self.views.items()}
        if self.state is not None:
            features[fmt.STATE] = fmt.vector(self.state, state_names)
        if self.action is not None:
            features[fmt.ACTION] = fmt.vector(self.action, action_names)
        if self.progress:
            features[fmt.PROGRESS] = fmt.number("float32")
        return {**features, fmt.STEP: fmt.number("int64"), **fmt.ROW_FEATURES}


class DatasetWriter:
    """`with DatasetWriter(path) as writer: writer.add(episode)` for each episode.

    The first episode settles views, picture sizes, fps, the sizes of state and action and whether progress is known;
    the others must have the same. Everything goes into a folder beside the target, which gets its name at the end:
    a writer that is killed, or left by an exception, leaves no dataset. An existing target is refused.
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
        """`*_file_mb`: size from which the next episode goes to a new file. Raises `DataError` if `path` exists."""
        self.path = Path(path)
        self._refuse_existing()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._folder = self.path.with_name(f".{self.path.name}.partial-{uuid.uuid4().hex[:8]}")
        self._folder.mkdir()
        self._robot_type, self._names = robot_type, (state_names, action_names)
        self._data_file_mb, self._video_file_mb = data_file_mb, video_file_mb
        self._layout: Layout | None = None
        self._features: dict[str, fmt.Feature] = {}
        self._data: DataShelf
        self._videos: dict[str, VideoShelf] = {}
        self._tasks: dict[str, int] = {}
        self._episodes: list[dict[str, Any]] = []
        self._stats: dict[str, Stats] = {}
        self._frames = 0

    def __len__(self) -> int:
        """Episodes added so far."""
        return len(self._episodes)

    def add(self, episode: Episode) -> None:
        """Append one episode. Raises `DataError` when it does not fit the ones before; nothing is written then."""
        layout = Layout.of(episode)
        if self._layout is None:
            _check_names(self._names, layout)
            self._layout, self._features = layout, layout.features(*self._names)
            self._open_shelves(layout)
        _check_episode(episode, layout, self._layout, {row["name"] for row in self._episodes})
        columns = self._columns(episode)
        stats = {key: column_stats(column) for key, column in columns.items()}
        stats |= {fmt.view_key(name): image_stats(frames) for name, frames in episode.views.items()}
        data = self._data.add(columns)
        videos = {fmt.view_key(name): self._videos[name].add(frames) for name, frames in episode.views.items()}
        self._episodes.append(_episode_row(episode, len(self), self._frames, data, videos) | _flat(stats))
        self._stats = {key: pooled([self._stats[key], part]) if self._stats else part for key, part in stats.items()}
        self._frames += len(episode)

    def close(self) -> None:
        """Finish the files and give the folder its name. Raises `DataError` when no episode was added."""
        if self._layout is None:
            self.abandon()
            raise DataError(f"{self.path}: no episode was recorded, so no dataset was written")
        self._data.close()
        for shelf in self._videos.values():
            shelf.close()
        self._write_meta(self._layout)
        self._refuse_existing()
        self._folder.rename(self.path)

    def abandon(self) -> None:
        """Leave nothing behind."""
        for shelf in self._videos.values():
            shelf.abandon()
        shutil.rmtree(self._folder)

    def __enter__(self) -> DatasetWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def _refuse_existing(self) -> None:
        if self.path.exists():
            raise DataError(f"{self.path}: already exists; datasets are never overwritten, choose another folder")

    def _open_shelves(self, layout: Layout) -> None:
        columns = {key: feature for key, feature in self._features.items() if feature["dtype"] != "video"}
        schema = pa.schema({key: fmt.column_type(feature) for key, feature in columns.items()})
        self._data = DataShelf(self._folder, schema, self._data_file_mb)
        for name, size in layout.views.items():
            self._videos[name] = VideoShelf(self._folder, fmt.view_key(name), layout.fps, size, self._video_file_mb)

    def _columns(self, episode: Episode) -> dict[str, np.ndarray]:
        """The rows that the data file gets for one episode, by feature."""
        length = len(episode)
        task = self._tasks.setdefault(episode.instruction, len(self._tasks))
        columns: dict[str, np.ndarray | None] = {
            fmt.STATE: episode.state,
            fmt.ACTION: episode.action,
            fmt.PROGRESS: episode.progress,
            fmt.STEP: step_column(episode.steps, length),
            "timestamp": (np.arange(length) / episode.fps).astype(np.float32),
            "frame_index": np.arange(length),
            "episode_index": np.full(length, len(self)),
            "index": np.arange(self._frames, self._frames + length),
            "task_index": np.full(length, task),
        }
        return {key: column for key, column in columns.items() if column is not None}

    def _write_meta(self, layout: Layout) -> None:
        stats = {key: {name: value.tolist() for name, value in part.items()} for key, part in self._stats.items()}
        meta = self._folder / "meta"
        episodes = self._folder / fmt.EPISODES_PATH.format(chunk_index=0, file_index=0)
        episodes.parent.mkdir(parents=True)
        pq.write_table(_episodes_table(self._episodes), episodes)
        pq.write_table(fmt.tasks_table(list(self._tasks)), meta / "tasks.parquet")
        (meta / "stats.json").write_text(json.dumps(stats, indent=2, allow_nan=False))
        (meta / "info.json").write_text(json.dumps(self._info(layout), indent=2, allow_nan=False))

    def _info(self, layout: Layout) -> dict[str, Any]:
        return {
            "codebase_version": fmt.VERSION,
            "robot_type": self._robot_type,
            "total_episodes": len(self),
            "total_frames": self._frames,
            "total_tasks": len(self._tasks),
            "chunks_size": fmt.FILES_PER_CHUNK,
            "data_files_size_in_mb": self._data_file_mb,
            "video_files_size_in_mb": self._video_file_mb,
            "fps": int(layout.fps) if float(layout.fps).is_integer() else layout.fps,
            "splits": {"train": f"0:{len(self)}"},
            "data_path": fmt.DATA_PATH,
            "video_path": fmt.VIDEO_PATH,
            "features": self._features,
        }


def step_column(steps: Sequence[Step], length: int) -> IntArray:
    """int64 [T]: index of the step that each frame belongs to, -1 for none."""
    column = np.full(length, -1, np.int64)
    for i, step in enumerate(steps):
        column[step.start : step.end] = i
    return column


def _check_names(names: tuple[Sequence[str] | None, Sequence[str] | None], layout: Layout) -> None:
    for what, given, size in (("state", names[0], layout.state), ("action", names[1], layout.action)):
        if given is not None and len(given) != size:
            raise DataError(f"{what}_names has {len(given)} names, the recorded {what} has size {size}")


def _check_episode(episode: Episode, layout: Layout, expected: Layout, taken: set[str]) -> None:
    """Refuse an episode that does not fit its dataset, and numbers that are none."""
    for part in ("views", "fps", "state", "action", "progress"):
        here, there = getattr(layout, part), getattr(expected, part)
        if here != there:
            raise DataError(f"{episode.name}: {part} is {here}, in the dataset's first episode it is {there}")
    if episode.name in taken:
        raise DataError(f"{episode.name}: the dataset already has an episode of that name")
    for part in ("state", "action", "progress"):
        column = getattr(episode, part)
        if column is not None and not np.isfinite(column).all():
            frame = int(np.argwhere(~np.isfinite(column))[0][0])
            raise DataError(f"{episode.name}: {part} is not finite at frame {frame}")


def _episode_row(
    episode: Episode, index: int, start: int, data: dict[str, Any], videos: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """The row of `meta/episodes` for one episode, statistics aside."""
    row: dict[str, Any] = {
        "episode_index": index,
        "tasks": [episode.instruction],
        "length": len(episode),
        "dataset_from_index": start,
        "dataset_to_index": start + len(episode),
        **{f"data/{key}": value for key, value in data.items()},
        **{f"videos/{video}/{key}": value for video, place in videos.items() for key, value in place.items()},
        "meta/episodes/chunk_index": 0,
        "meta/episodes/file_index": 0,
        fmt.NAME: episode.name,
        fmt.SUCCESS: episode.success,
        fmt.STEP_NAMES: [step.name for step in episode.steps],
        fmt.STEP_STARTS: [step.start for step in episode.steps],
        fmt.STEP_ENDS: [step.end for step in episode.steps],
    }
    return row | {fmt.TEXT + key: value for key, value in episode.meta.items()}


def _flat(stats: dict[str, Stats]) -> dict[str, Any]:
    return {f"stats/{key}/{name}": value.tolist() for key, part in stats.items() for name, value in part.items()}


def _episodes_table(rows: list[dict[str, Any]]) -> pa.Table:
    """All rows as one table; a text column that an episode lacks is null there."""
    names = list(dict.fromkeys(key for row in rows for key in row))
    types = {fmt.SUCCESS: pa.bool_(), fmt.STEP_NAMES: pa.list_(pa.string())}
    types |= {key: pa.list_(pa.int64()) for key in (fmt.STEP_STARTS, fmt.STEP_ENDS)}
    return pa.table({name: pa.array([row.get(name) for row in rows], types.get(name)) for name in names})
