"""Measure columns of parquet files in limited memory. Run by path; imports only pyarrow, PyAV and numpy.

{"op": "measure", "path", "columns", "rows", "max_bytes", "cell_bytes"} -> D {"num_bytes", "texts"}

A file of 400 bytes can decode to terabytes, and its footer and pages can state less. So the columns, null: all, are
decoded here first, some rows at a time. `num_bytes` is the memory that these rows, null: all, need, or the first sum
above the limit; each cell takes `cell_bytes` more, and each row as much as `ROW_CELLS` cells. `texts` are the full
names of texts, of which a file may store one for all rows.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import Any, BinaryIO

os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # the others reserve address space, which is limited

import framing
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

ROWS_PER_BATCH = 1024
MAX_MEMORY_BYTES = 1 << 30  # as much as a table may need; pages are decoded one by one
BYTES_PER_LENGTH = 8  # of a list
BYTES_PER_NULL = 8  # of a column that holds nothing else, which Arrow keeps as a count
MIN_BYTES_PER_VALUE = 1  # Arrow keeps booleans as bits, and nothing else does
ROW_CELLS = 6  # cells whose memory an empty row takes as an object of Python
TEXT_TYPE = "BYTE_ARRAY"  # physical type of texts


def handle_request(request: dict[str, Any], out: BinaryIO) -> None:
    """Handle one request."""
    try:
        with pq.ParquetFile(request["path"]) as file:
            texts = text_columns(file.metadata.schema, request["columns"])
        num_bytes = decoded_bytes(texts, request)
    except MemoryError:  # also ArrowMemoryError
        raise framing.InvalidFileError(f"{ROWS_PER_BATCH} of its rows need over {MAX_MEMORY_BYTES >> 20} MiB") from None
    except (pa.ArrowException, OSError) as error:
        message = (str(error).splitlines() or [type(error).__name__])[0]
        raise framing.InvalidFileError(f"cannot be read ({message})") from None
    framing.send_result(out, {"num_bytes": num_bytes, "texts": texts})


def text_columns(schema: pq.ParquetSchema, columns: Collection[str] | None) -> list[str]:
    """Return the texts in columns, None: in all, by their full names."""
    stored = map(schema.column, range(len(schema)))
    return [column.path for column in stored if column.physical_type == TEXT_TYPE and is_selected(column.path, columns)]


def is_selected(name: str, columns: Collection[str] | None) -> bool:
    """Whether the full name of a column, which may be part of another one, is among columns, None: all."""
    return columns is None or any(name == column or name.startswith(f"{column}.") for column in columns)


def decoded_bytes(texts: list[str], request: dict[str, Any]) -> int:
    """Decode the columns batch by batch and return the memory of the rows, or the first sum above the limit."""
    num_bytes = 0
    with pq.ParquetFile(request["path"], read_dictionary=texts) as file:
        batches = iterate_batches(file, request["columns"])
        for batch in batches if request["rows"] is None else select_rows(batches, request["rows"]):
            num_bytes += sum(map(array_bytes, batch.columns))
            num_bytes += len(batch) * (batch.num_columns + ROW_CELLS) * request["cell_bytes"]
            if num_bytes > request["max_bytes"]:
                break
    return num_bytes


def iterate_batches(file: pq.ParquetFile, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
    """Yield batches of each row group: across groups, pyarrow cannot read nested texts as dictionaries."""
    for row_group in range(file.num_row_groups):
        yield from file.iter_batches(ROWS_PER_BATCH, row_groups=[row_group], columns=columns, use_threads=False)


def select_rows(batches: Iterator[pa.RecordBatch], rows: list[int]) -> Iterator[pa.RecordBatch]:
    """Yield some rows, in ascending order, of consecutive batches."""
    start, last = 0, rows[-1] if rows else -1
    for batch in batches:
        yield from (batch.slice(row - start, 1) for row in rows if start <= row < start + len(batch))
        start += len(batch)
        if start > last:
            return


def array_bytes(array: pa.Array) -> int:
    """Return the memory that the values of an array need after each text that it stores once is repeated."""
    if pa.types.is_dictionary(array.type):
        lengths = pc.binary_length(array.dictionary).take(array.indices)
        return int(pc.sum(lengths.cast(pa.int64()), min_count=0).as_py()) + int(array.indices.nbytes)
    if pa.types.is_struct(array.type):
        return sum(map(array_bytes, array.flatten()))
    if pa.types.is_nested(array.type):
        return array_bytes(array.flatten()) + len(array) * BYTES_PER_LENGTH
    if pa.types.is_null(array.type):
        return len(array) * BYTES_PER_NULL
    return max(int(array.nbytes), len(array) * MIN_BYTES_PER_VALUE)


if __name__ == "__main__":
    framing.limit_memory(MAX_MEMORY_BYTES)
    framing.serve(handle_request, ())
