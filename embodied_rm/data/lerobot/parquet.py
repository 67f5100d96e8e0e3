"""Parquet files, or what is wrong with them."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from embodied_rm.data.video.mp4 import check_file
from embodied_rm.errors import DataError


def read_parquet(path: Path, columns: list[str] | None = None) -> pa.Table:
    """A parquet file, or a `DataError` naming it and its fault."""
    read_footer(path)
    try:
        return pq.read_table(path, columns=columns, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read ({_first_line(error)})") from None


def rewrite_parquet(path: Path, transform: Callable[[pa.Table], pa.Table]) -> bytes:
    """The bytes of a parquet file in which every row group is changed: groups, types and compression stay.

    Raises `DataError` as `read_parquet`.
    """
    read_footer(path)
    buffer = io.BytesIO()
    with pq.ParquetFile(path) as file:
        compression = file.metadata.row_group(0).column(0).compression if file.num_row_groups else "snappy"
        with pq.ParquetWriter(buffer, file.schema_arrow, compression=compression) as writer:
            for row_group in range(file.num_row_groups):
                writer.write_table(transform(file.read_row_group(row_group)))
    return buffer.getvalue()


def read_footer(path: Path) -> pq.FileMetaData:
    """The footer of a parquet file: a file that was never finished has none. Raises `DataError`."""
    check_file(path, "parquet")
    try:
        return pq.read_metadata(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cut short or not parquet ({_first_line(error)})") from None


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
