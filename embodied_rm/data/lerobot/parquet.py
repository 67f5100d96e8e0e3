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
MAX_RECORD_BYTES = 1 << 27  # of columns that become objects of Python, which take about ten times the memory
BYTES_PER_VALUE = 8  # the largest number
PARQUET_ERRORS = (pa.ArrowException, OSError, UnicodeDecodeError)  # the last one: names of columns
TEXT_TYPE = "BYTE_ARRAY"  # physical type of texts, of which a file may store one for all rows


def read_parquet(path: Path, columns: list[str] | None = None, *, max_bytes: int | None = None) -> pa.Table:
    """Read columns, None: all, of a parquet file.

    Raises:
        DataError: They cannot be read, or need more memory than `max_bytes` (None: `MAX_TABLE_BYTES`).
    """
    max_bytes = MAX_TABLE_BYTES if max_bytes is None else max_bytes
    footer = read_footer(path)
    texts = text_columns(footer, columns)
    try:
        num_bytes = stated_bytes(path, columns)
        if texts and num_bytes <= max_bytes:
            with pq.ParquetFile(path, read_dictionary=texts) as file:
                encoded = file.read(columns=texts)
            num_bytes += sum(decoded_bytes(part) for column in encoded.columns for part in column.chunks)
        check_bytes(path, num_bytes, max_bytes)
        return pq.read_table(path, columns=columns, partitioning=None)
    except PARQUET_ERRORS as error:
        raise DataError(f"{path}: cannot be read ({_first_line(error)})") from None


def read_records(path: Path, columns: list[str] | None = None) -> list[tuple[dict[str, Any], str | None]]:
    """Read the rows of a short parquet file, see `to_records`; `DataError` as `read_parquet`."""
    return to_records(read_parquet(path, columns, max_bytes=MAX_RECORD_BYTES))


def stated_bytes(path: Path, columns: list[str] | None) -> int:
    """Return the memory that columns, None: all, need by the footer, where a file does not store equal texts once."""
    footer, num_bytes = scan_columns(path, columns), 0
    for index, column in enumerate(map(footer.schema.column, range(len(footer.schema)))):
        for group in map(footer.row_group, range(footer.num_row_groups)) if is_selected(column.path, columns) else ():
            chunk, value_bytes = group.column(index), max(BYTES_PER_VALUE, column.length)
            num_bytes += max(chunk.num_values * value_bytes, chunk.total_uncompressed_size)
    return num_bytes


def scan_columns(path: Path, columns: list[str] | None) -> pq.FileMetaData:
    """Read columns page by page, keep nothing, and return the footer.

    Without this, `row_group(0).column(0)` of an invalid footer ends the process: pyarrow does not catch its exception.
    So only columns that are scanned may be asked for.
    """
    with pq.ParquetFile(path) as file:
        file.scan_contents(columns)
        return file.metadata


def text_columns(footer: pq.FileMetaData, columns: Collection[str] | None) -> list[str]:
    """Return the texts in columns, None: in all, by their full names."""
    stored = map(footer.schema.column, range(len(footer.schema)))
    return [column.path for column in stored if column.physical_type == TEXT_TYPE and is_selected(column.path, columns)]


def check_bytes(path: Path, num_bytes: int, max_bytes: int) -> None:
    """Raise `DataError` for rows of a file that need more memory than `max_bytes`."""
    if num_bytes > max_bytes:
        raise DataError(f"{path}: its rows need {num_bytes >> 20} MiB, {max_bytes >> 20} are possible")


def is_selected(name: str, columns: Collection[str] | None) -> bool:
    """Whether the full name of a column, which may be part of another one, is among columns, None: all."""
    return columns is None or any(name == column or name.startswith(f"{column}.") for column in columns)


def decoded_bytes(array: pa.Array) -> int:
    """Return the memory that the values of an array need after each text that it stores once is repeated."""
    if pa.types.is_dictionary(array.type):
        lengths = pc.binary_length(array.dictionary).take(array.indices)
        return int(pc.sum(lengths.cast(pa.int64()), min_count=0).as_py())
    if pa.types.is_struct(array.type):
        return sum(map(decoded_bytes, array.flatten()))
    if is_list_type(array.type) or pa.types.is_map(array.type):
        return decoded_bytes(array.flatten())
    return int(array.nbytes)


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
    start, num_bytes = 0, 0
    texts = text_columns(read_footer(path), [column])
    try:
        check_bytes(path, stated_bytes(path, [column]), MAX_TABLE_BYTES)
        with pq.ParquetFile(path, read_dictionary=texts) as file:
            for batch in file.iter_batches(ROWS_PER_BATCH, columns=[column]):
                values = batch.column(0)
                for row in sorted(row for row in rows if start <= row < start + len(values)):
                    num_bytes += decoded_bytes(values.slice(row - start, 1))
                    check_bytes(path, num_bytes, MAX_RECORD_BYTES)
                    cells[row] = values[row - start].as_py()
                start += len(values)
    except PARQUET_ERRORS as error:
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
    footer, buffer = scan_columns(path, None), io.BytesIO()
    compression = footer.row_group(0).column(0).compression if footer.num_row_groups else "snappy"
    with (
        pq.ParquetFile(path) as file,
        pq.ParquetWriter(buffer, file.schema_arrow, compression=compression) as writer,
    ):
        for row_group in range(file.num_row_groups):
            writer.write_table(transform(file.read_row_group(row_group)))
    return buffer.getvalue()


def read_footer(path: Path) -> pq.FileMetaData:
    """Read the footer of a parquet file, which an unfinished file lacks, and check that its schema can be read."""
    check_file(path, "parquet")
    try:
        footer = pq.read_metadata(path)
        _ = footer.schema.to_arrow_schema().names, text_columns(footer, None)
    except PARQUET_ERRORS as error:
        raise DataError(f"{path}: cut short or not parquet ({_first_line(error)})") from None
    return footer


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
