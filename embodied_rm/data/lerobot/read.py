"""Reads LeRobot datasets, ours and foreign ones, v3.0 and v2.1: metadata at once, frames on demand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embodied_rm.data.faults import Fault, named, refuse_empty
from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.lerobot import v21, v30
from embodied_rm.data.lerobot.check import file_faults, total_faults
from embodied_rm.data.lerobot.info import read_info, video_keys
from embodied_rm.data.lerobot.rows import Row
from embodied_rm.data.lerobot.tables import read_parquet
from embodied_rm.data.names import AS_STORED, Names, columns_of
from embodied_rm.data.source import Columns, chosen_views, refuse_not_finite
from embodied_rm.data.stride import kept_frames, thin_steps
from embodied_rm.data.video.decoder import Decoder
from embodied_rm.errors import DataError
from embodied_rm.types import Array, Episode, Views

VERSIONS = {fmt.VERSION: v30, "v2.1": v21, "v2.0": v21}


class LeRobotDataset:
    """A LeRobot folder, an `EpisodeSource`. Nothing is ever written into it.

    Opening checks the whole folder: tables, totals, order, files, every video's frames, its first and its last picture.
    Episodes with a fault are left out, and `faults` says which and why. Of foreign datasets success and steps are
    unknown. Raises `DataError` when the folder cannot be read as a whole, or no episode of it.
    """

    def __init__(self, path: Path | str, names: Names = AS_STORED) -> None:
        self.path = Path(path)
        self._decoder = Decoder()
        info = read_info(self.path)
        self._features: dict[str, Any] = info["features"]
        stored = video_keys(self._features)
        if not stored:
            raise DataError(f"{self.path}: the dataset has no videos; features: {', '.join(self._features)}")
        keys = {ours: stored[view] for ours, view in names.of_views(stored, self.path).items()}
        version = VERSIONS[info["codebase_version"]]
        listed, faults = version.read_rows(self.path, info, keys)
        tasks, totals = total_faults(self.path, info, listed, version.task_count)
        faults += totals
        once = list({row.index: row for row in listed}.values())
        self._begins, found = file_faults(self.path, info, keys, once, tasks, self._decoder)
        self.faults: tuple[Fault, ...] = (*faults, *found)
        left_out = set(named(self.faults))
        self._rows = [row for row in listed if row.meta.name not in left_out]
        refuse_empty(self.path, self._rows, self.faults)
        self._state = columns_of(names.state, fmt.STATE, self._features, self.path)
        self._action = columns_of(names.action, fmt.ACTION, self._features, self.path)
        self.views = tuple(keys)
        self.fps = float(info["fps"])
        self.meta = tuple(
            replace(row.meta, number=row.index, first=self._begins[row.index].first) for row in self._rows
        )
        self._cached: tuple[Path, pa.Table] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Episode]:
        return (self.episode(i) for i in range(len(self)))

    def files(self, index: int) -> tuple[Path, ...]:
        """The films and the table of numbers of an episode."""
        row = self._rows[index]
        return (*(row.videos[view][0] for view in self.views), row.data)

    def picture_size(self, index: int) -> tuple[int, int]:
        """(height, width) at which an episode's first view is stored."""
        info = self._decoder.probe(self._rows[index].videos[self.views[0]][0])
        return info.height, info.width

    def frame_rate(self, index: int) -> float:
        """Frames a second, of all episodes."""
        return self.fps

    def moments(
        self, index: int, start: int, stop: int, *, views: Sequence[str], size: tuple[int, int] | None
    ) -> Views:
        """Read some frames of one episode; see `EpisodeSource.moments`."""
        names, videos = chosen_views(views, self.views, str(self.path)), self._rows[index].videos
        seconds = np.arange(start, stop) / self.fps
        frames = [self._decoder.read(videos[v][0], videos[v][1] + seconds, self.fps, size) for v in names]
        return Views(names=names, frames=np.stack(frames, axis=1))

    def episode(
        self,
        index: int,
        *,
        views: Sequence[str] | None = None,
        size: tuple[int, int] | None = None,
        stride: int = 1,
    ) -> Episode:
        """Read one episode; see `EpisodeSource.episode`. Episodes read in order are decoded without seeking."""
        row = self._rows[index]
        kept = kept_frames(row.meta.length, stride)
        frames = {}
        for view in chosen_views(views, self.views, str(self.path)):
            path, start = row.videos[view]
            frames[view] = self._decoder.read(path, start + kept / self.fps, self.fps, size)
        columns = self.columns(index).kept(kept)
        return Episode(
            name=row.meta.name,
            views=frames,
            instruction=row.meta.instruction,
            fps=self.fps / stride,
            steps=row.meta.steps if stride == 1 else thin_steps(row.meta.steps, kept),
            success=row.meta.success,
            progress=columns.progress,
            state=columns.state,
            action=columns.action,
            meta=row.meta.text,
        )

    def columns(self, index: int) -> Columns:
        """The numbers of one episode; see `EpisodeSource.columns`. Progress is read where it is ours: with steps."""
        row, ours = self._rows[index], {fmt.PROGRESS, fmt.STEP} <= set(self._features)
        return Columns(
            state=self._joined(row, self._state),
            action=self._joined(row, self._action),
            progress=self._column(row, fmt.PROGRESS)[:, 0] if ours else None,
        )

    def _joined(self, row: Row, keys: Sequence[str]) -> Array | None:
        """Numeric columns of one episode side by side, float32 [T, D]; None of none."""
        return np.concatenate([self._column(row, key) for key in keys], axis=1) if keys else None

    def _column(self, row: Row, key: str) -> Array:
        """A numeric column of one episode, float32 [T, D]."""
        column = self._table(row.data)[key].slice(self._begins[row.index].row, row.meta.length).combine_chunks()
        if column.null_count:
            raise DataError(f"{row.data}: {key} is missing in a row of episode {row.index}")
        if pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
            column = pc.list_flatten(column)
        if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
            raise DataError(f"{row.data}: {key} holds {column.type}, numbers were expected")
        values = column.to_numpy(zero_copy_only=False).astype(np.float32)
        if len(values) % row.meta.length:
            raise DataError(f"{row.data}: {key} has rows of different length in episode {row.index}")
        values = values.reshape(row.meta.length, -1)
        refuse_not_finite(values, f"{key} of episode {row.index}", row.data)
        return values

    def _table(self, path: Path) -> pa.Table:
        """The numeric columns of a data file; the last one used is kept."""
        if self._cached is None or self._cached[0] != path:
            wanted = dict.fromkeys((*self._state, *self._action, fmt.PROGRESS))
            self._cached = path, read_parquet(path, [key for key in wanted if key in self._features])
        return self._cached[1]
