"""Read and rewrite parquet files."""

import io
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from embodied_rm.data.dataset_files import check_file
from embodied_rm.errors import DataError


def read_parquet(path: Path, columns: list[str] | None = None) -> pa.Table:
    """Read a parquet file."""
    read_footer(path)
    try:
        return pq.read_table(path, columns=columns, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read ({_first_line(error)})") from None


def rewrite_parquet(path: Path, transform: Callable[[pa.Table], pa.Table]) -> bytes:
    """Transform every row group and return the content of the new file; row groups, types and compression are kept."""
    read_footer(path)
    buffer = io.BytesIO()
    with pq.ParquetFile(path) as file:
        compression = file.metadata.row_group(0).column(0).compression if file.num_row_groups else "snappy"
        with pq.ParquetWriter(buffer, file.schema_arrow, compression=compression) as writer:
            for row_group in range(file.num_row_groups):
                writer.write_table(transform(file.read_row_group(row_group)))
    return buffer.getvalue()


def read_footer(path: Path) -> pq.FileMetaData:
    """Read the footer of a parquet file, which an unfinished file lacks."""
    check_file(path, "parquet")
    try:
        return pq.read_metadata(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cut short or not parquet ({_first_line(error)})") from None


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
