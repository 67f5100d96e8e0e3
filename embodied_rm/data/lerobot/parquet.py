"""Read and rewrite parquet files."""

import io
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from embodied_rm.data.dataset_files import check_file, check_utf8
from embodied_rm.data.subprocess_worker import SubprocessWorker
from embodied_rm.errors import DataError

ROWS_PER_BATCH = 1024
MAX_TABLE_BYTES = 1 << 30  # of the columns that are read of one file: a file of 1 MB can state 100 million rows
MAX_RECORD_BYTES = 1 << 27  # of columns that become objects of Python, which take about ten times the memory
RECORD_CELL_BYTES = 4  # of the same limit, for each cell: a tenth of an entry of a dictionary
PARQUET_ERRORS = (pa.ArrowException, OSError, UnicodeDecodeError)  # the last one: names of columns


class ParquetMeter(SubprocessWorker):
    """Decodes columns in a child process of limited memory, before they are read here."""

    script = Path(__file__).parents[1] / "workers" / "measure_parquet.py"
    description = "parquet reader"

    def measure(
        self,
        path: Path,
        columns: list[str] | None,
        max_bytes: int,
        rows: Collection[int] | None = None,
        cell_bytes: int = 0,
    ) -> list[str]:
        """Return the full names of texts in columns, None: all. Each cell counts as `cell_bytes` more than it needs.

        Raises:
            DataError: The rows, None: all, cannot be read, or need more memory than `max_bytes`.
        """
        fields: dict[str, Any] = {
            "columns": columns,
            "rows": None if rows is None else sorted(rows),
            "max_bytes": max_bytes,
            "cell_bytes": cell_bytes,
        }
        _, found = self.request(path, "measure", **fields)
        if found["num_bytes"] > max_bytes:
            raise DataError(f"{path}: its rows need more than {max_bytes >> 20} MiB")
        return list(found["texts"])


METER = ParquetMeter()


def read_parquet(
    path: Path, columns: list[str] | None = None, *, max_bytes: int | None = None, cell_bytes: int = 0
) -> pa.Table:
    """Read columns, None: all, of a parquet file. Each cell counts as `cell_bytes` more than it needs.

    Raises:
        DataError: They cannot be read, or need more memory than `max_bytes` (None: `MAX_TABLE_BYTES`).
    """
    read_footer(path)
    METER.measure(path, columns, MAX_TABLE_BYTES if max_bytes is None else max_bytes, cell_bytes=cell_bytes)
    try:
        return pq.read_table(path, columns=columns, partitioning=None)
    except PARQUET_ERRORS as error:
        raise DataError(f"{path}: cannot be read ({_first_line(error)})") from None


def read_records(path: Path, columns: list[str] | None = None) -> list[tuple[dict[str, Any], str | None]]:
    """Read the rows of a short parquet file, see `to_records`; `DataError` as `read_parquet`."""
    return to_records(read_parquet(path, columns, max_bytes=MAX_RECORD_BYTES, cell_bytes=RECORD_CELL_BYTES))


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
    read_footer(path)
    texts = METER.measure(path, [column], MAX_RECORD_BYTES, rows)
    cells: dict[int, Any] = {}
    start, last = 0, max(rows, default=-1)
    try:
        with pq.ParquetFile(path, read_dictionary=texts) as file:
            groups = range(file.num_row_groups)  # one by one, as in workers/measure_parquet.py
            for batch in chain.from_iterable(
                file.iter_batches(ROWS_PER_BATCH, row_groups=[group], columns=[column]) for group in groups
            ):
                values = batch.column(0)
                cells |= {row: values[row - start].as_py() for row in rows if start <= row < start + len(values)}
                start += len(values)
                if start > last:
                    break
    except PARQUET_ERRORS as error:
        raise DataError(f"{path}: cannot be read ({_first_line(error)})") from None
    return cells


def iterate_names(fields: Iterable[pa.Field], prefix: str = "") -> Iterator[str]:
    """Yield the names of columns, and as `<column>/<field>` those of the fields of structs."""
    for column in fields:
        yield prefix + column.name
        if pa.types.is_struct(column.type):
            yield from iterate_names(column.type, f"{prefix}{column.name}/")


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
    footer, buffer = read_footer(path), io.BytesIO()
    METER.measure(path, None, MAX_TABLE_BYTES)  # without it, pyarrow ends the process on a chunk of an invalid footer
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
    check_utf8(path)
    check_file(path, "parquet")
    try:
        footer = pq.read_metadata(path)
        _ = footer.schema.to_arrow_schema().names, [footer.schema.column(i).path for i in range(len(footer.schema))]
    except PARQUET_ERRORS as error:
        raise DataError(f"{path}: cut short or not parquet ({_first_line(error)})") from None
    return footer


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
