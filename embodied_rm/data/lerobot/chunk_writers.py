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

BYTES_PER_MB = 1 << 20


def chunk_and_file_index(file_number: int) -> dict[str, int]:
    """Chunk and file index of the dataset's `number`-th file of a kind."""
    return {"chunk_index": file_number // fmt.FILES_PER_CHUNK, "file_index": file_number % fmt.FILES_PER_CHUNK}


class ParquetChunkWriter:
    """Rows of numbers: parquet, one row group an episode."""

    def __init__(self, folder: Path, schema: pa.Schema, file_mb: float) -> None:
        self._folder, self._schema, self._max_bytes = folder, schema, file_mb * BYTES_PER_MB
        self._file_number = -1
        self._path = folder
        self._writer: pq.ParquetWriter | None = None

    def add(self, columns: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Append an episode's rows; answers in which file they are."""
        if self._writer is None or self._path.stat().st_size >= self._max_bytes:
            self._next_file()
        assert self._writer is not None
        arrays = [_to_arrow(np.asarray(columns[field.name]), field.type) for field in self._schema]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        return chunk_and_file_index(self._file_number)

    def _next_file(self) -> None:
        self.close()
        self._file_number += 1
        self._path = self._folder / fmt.DATA_PATH.format(**chunk_and_file_index(self._file_number))
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(self._path, self._schema)

    def close(self) -> None:
        """Write the footer."""
        if self._writer is not None:
            self._writer.close()


class VideoChunkWriter:
    """One view's images: mp4, episodes end to end."""

    def __init__(self, folder: Path, key: str, fps: float, size: tuple[int, int], file_mb: float) -> None:
        self._folder, self._key, self._fps, self._size, self._max_bytes = folder, key, fps, size, file_mb * BYTES_PER_MB
        self._file_number = -1
        self._writer: VideoWriter | None = None

    def add(self, frames: Frames) -> dict[str, Any]:
        """Append an episode's frames; answers in which file they are, and from when to when (s)."""
        if self._writer is None or self._writer.num_bytes >= self._max_bytes:
            self._next_file()
        assert self._writer is not None
        start = self._writer.num_frames
        self._writer.add(frames)
        times = {"from_timestamp": start / self._fps, "to_timestamp": self._writer.num_frames / self._fps}
        return chunk_and_file_index(self._file_number) | times

    def _next_file(self) -> None:
        self.close()
        path = self._folder / fmt.VIDEO_PATH.format(video_key=self._key, **chunk_and_file_index(self._file_number + 1))
        path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = VideoWriter(path, self._fps, self._size)
        self._file_number += 1

    def close(self) -> None:
        """Write the index of the present file."""
        if self._writer is not None:
            self._writer.close()

    def abandon(self) -> None:
        """Free the encoder and delete the present file."""
        if self._writer is not None:
            self._writer.abandon()


def _to_arrow(column: np.ndarray, arrow_type: pa.DataType) -> pa.Array:
    """[T] or [T, D] as an array of that type."""
    if pa.types.is_fixed_size_list(arrow_type):
        flat = pa.array(np.ascontiguousarray(column).reshape(-1), arrow_type.value_type)
        return pa.FixedSizeListArray.from_arrays(flat, arrow_type.list_size)
    return pa.array(column.reshape(-1), arrow_type)
