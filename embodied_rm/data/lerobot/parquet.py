"""Read and rewrite parquet files."""

import io
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from embodied_rm.data.dataset_files import check_file
from embodied_rm.errors import DataError

ROWS_PER_BATCH = 1024
MAX_TABLE_BYTES = 1 << 30  # of the columns that are read of one file: a file of 1 MB can state 100 million rows
BYTES_PER_VALUE = 8  # the largest number


def read_parquet(path: Path, columns: list[str] | None = None) -> pa.Table:
    """Read a parquet file."""
    check_decoded_size(path, read_footer(path), columns)
    try:
        return pq.read_table(path, columns=columns, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read ({_first_line(error)})") from None


def check_decoded_size(path: Path, footer: pq.FileMetaData, columns: list[str] | None) -> None:
    """Raise `DataError` for columns, None: all, that need more than `MAX_TABLE_BYTES` of memory by their footer."""
    num_bytes = 0
    for group in map(footer.row_group, range(footer.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            name = chunk.path_in_schema
            if columns is None or any(name == column or name.startswith(f"{column}.") for column in columns):
                num_bytes += max(chunk.num_values * BYTES_PER_VALUE, chunk.total_uncompressed_size)
    if num_bytes > MAX_TABLE_BYTES:
        raise DataError(
            f"{path}: its {footer.num_rows} rows need {num_bytes >> 20} MiB, {MAX_TABLE_BYTES >> 20} are possible"
        )


def to_records(table: pa.Table) -> list[tuple[dict[str, Any], str | None]]:
    """Convert the rows of a table to dictionaries, each with a clause about a cell that is not readable, or None.

    Such a cell, which is None in its dictionary, is a text that is not UTF-8, or a date outside of the calendar.
    """
    try:
        return [(record, None) for record in table.to_pylist()]
    except (ValueError, OverflowError):
        return [_to_record(table.slice(row, 1), row) for row in range(len(table))]


def _to_record(table: pa.Table, row: int) -> tuple[dict[str, Any], str | None]:
    """Convert the only row of a table cell by cell; `row` is its number."""
    record, issue = dict[str, Any](), None
    for name in table.column_names:
        try:
            record[name] = table[name][0].as_py()
        except (ValueError, OverflowError) as error:
            record[name], issue = None, f"{name} of row {row} cannot be read ({_first_line(error)})"
    return record, issue


def read_cells(path: Path, column: str, rows: Collection[int]) -> dict[int, Any]:
    """Read some rows of a column, batch by batch, so that the whole column never has to fit into memory."""
    cells: dict[int, Any] = {}
    start = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS_PER_BATCH, columns=[column]):
                values = batch.column(0)
                cells |= {row: values[row - start].as_py() for row in rows if start <= row < start + len(values)}
                start += len(values)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read ({_first_line(error)})") from None
    return cells


def is_list_type(arrow_type: pa.DataType) -> bool:
    """Whether a type is one of lists, of fixed or variable length; polars writes large ones."""
    checks = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(check(arrow_type) for check in checks)


def flatten_singletons(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of a column whose rows are lists of one value, as some writers store shape [1]; or the column.

    A null row keeps its place.
    """
    while is_list_type(column.type):
        if not pc.all(pc.equal(pc.list_value_length(column), 1), min_count=0).as_py():
            break
        column = pc.list_element(column, 0)
    return column


def unwrap_singleton(value: Any) -> Any:
    """Return the value in lists of one value, however nested; another value as it is."""
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value


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
