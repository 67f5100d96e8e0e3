"""The growing files of a LeRobot dataset: many episodes to a file, a new file when one is full."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.video.files import VideoWriter
from embodied_rm.types import Frames

MB = 1 << 20


def place(number: int) -> dict[str, int]:
    """Chunk and file index of the dataset's `number`-th file of a kind."""
    return {"chunk_index": number // fmt.FILES_PER_CHUNK, "file_index": number % fmt.FILES_PER_CHUNK}


class DataShelf:
    """Rows of numbers: parquet, one row group an episode."""

    def __init__(self, folder: Path, schema: pa.Schema, file_mb: float) -> None:
        self._folder, self._schema, self._limit = folder, schema, file_mb * MB
        self._number = -1
        self._path = folder
        self._writer: pq.ParquetWriter | None = None

    def add(self, columns: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Append an episode's rows; answers in which file they are."""
        if self._writer is None or self._path.stat().st_size >= self._limit:
            self._next_file()
        assert self._writer is not None
        arrays = [_arrow(np.asarray(columns[field.name]), field.type) for field in self._schema]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        return place(self._number)

    def _next_file(self) -> None:
        self.close()
        self._number += 1
        self._path = self._folder / fmt.DATA_PATH.format(**place(self._number))
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(self._path, self._schema)

    def close(self) -> None:
        """Write the footer."""
        if self._writer is not None:
            self._writer.close()


class VideoShelf:
    """One view's pictures: mp4, episodes end to end."""

    def __init__(self, folder: Path, key: str, fps: float, size: tuple[int, int], file_mb: float) -> None:
        self._folder, self._key, self._fps, self._size, self._limit = folder, key, fps, size, file_mb * MB
        self._number = -1
        self._writer: VideoWriter | None = None

    def add(self, frames: Frames) -> dict[str, Any]:
        """Append an episode's frames; answers in which file they are, and from when to when (s)."""
        if self._writer is None or self._writer.bytes >= self._limit:
            self._next_file()
        assert self._writer is not None
        start = self._writer.count
        self._writer.add(frames)
        times = {"from_timestamp": start / self._fps, "to_timestamp": self._writer.count / self._fps}
        return place(self._number) | times

    def _next_file(self) -> None:
        self.close()
        path = self._folder / fmt.VIDEO_PATH.format(video_key=self._key, **place(self._number + 1))
        path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = VideoWriter(path, self._fps, self._size)
        self._number += 1

    def close(self) -> None:
        """Write the index of the present file."""
        if self._writer is not None:
            self._writer.close()

    def abandon(self) -> None:
        """Free the encoder and delete the present file."""
        if self._writer is not None:
            self._writer.abandon()


def _arrow(column: np.ndarray, kind: pa.DataType) -> pa.Array:
    """[T] or [T, D] as an array of that type."""
    if pa.types.is_fixed_size_list(kind):
        flat = pa.array(np.ascontiguousarray(column).reshape(-1), kind.value_type)
        return pa.FixedSizeListArray.from_arrays(flat, kind.list_size)
    return pa.array(column.reshape(-1), kind)
