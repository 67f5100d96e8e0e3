"""Writers for the files of a LeRobot dataset: several episodes per file, and a new file at a size limit."""

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
    """Return chunk and file index of the n-th file of a kind."""
    return {"chunk_index": file_number // fmt.FILES_PER_CHUNK, "file_index": file_number % fmt.FILES_PER_CHUNK}


class ParquetChunkWriter:
    """Writes numeric columns to parquet files, one row group per episode."""

    def __init__(self, folder: Path, schema: pa.Schema, file_mb: float) -> None:
        self._folder = folder
        self._schema = schema
        self._max_bytes = file_mb * BYTES_PER_MB
        self._file_number = -1
        self._path = folder
        self._writer: pq.ParquetWriter | None = None

    def add(self, columns: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Append the rows of an episode and return their chunk and file index."""
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
    """Writes the images of one view to mp4 files, episodes one after the other."""

    def __init__(self, folder: Path, key: str, fps: float, size: tuple[int, int], file_mb: float) -> None:
        self._folder = folder
        self._key = key
        self._fps = fps
        self._size = size
        self._max_bytes = file_mb * BYTES_PER_MB
        self._file_number = -1
        self._writer: VideoWriter | None = None

    def add(self, frames: Frames) -> dict[str, Any]:
        """Append the frames of an episode and return their chunk and file index and time range (s)."""
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
        """Write the index of the current file."""
        if self._writer is not None:
            self._writer.close()

    def abandon(self) -> None:
        """Release the encoder and delete the current file."""
        if self._writer is not None:
            self._writer.abandon()


def _to_arrow(column: np.ndarray, arrow_type: pa.DataType) -> pa.Array:
    """Convert [T] or [T, D] to an array of that type."""
    if pa.types.is_fixed_size_list(arrow_type):
        flat = pa.array(np.ascontiguousarray(column).reshape(-1), arrow_type.value_type)
        return pa.FixedSizeListArray.from_arrays(flat, arrow_type.list_size)
    return pa.array(column.reshape(-1), arrow_type)
