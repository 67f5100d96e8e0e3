"""Read images in parquet files. Run by path; imports only pyarrow, Pillow, PyAV and numpy.

{"op": "size", "path", "root", "column", "rows"}           -> D [height, width], which all of these images have
{"op": "images", "path", "root", "column", "rows", "size"} -> uint8 [T, H, W, 3]
{"op": "is_depth", "path", "root", "column", "rows"}       -> D whether the first of these images is a depth map

A row is an encoded image, the path of one in the folder `root`, or a struct {bytes, path}, as `datasets.Image` of
Hugging Face writes. Depth maps are rejected.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # the others reserve address space, which is limited

import framing
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from av.video.reformatter import VideoReformatter
from PIL import Image, ImageOps, UnidentifiedImageError

ROWS_PER_BATCH = 16
READ_BYTES = 1 << 20  # size of a read of the file, so that a row group never has to fit into memory
MAX_OPEN_FILES = 2
MAX_MEMORY_BYTES = 1 << 31  # of a page and the images in it; the header of a page states up to 2 GiB
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF")  # others of Pillow start programs, or are no images of cameras
COLOR_MODES = frozenset(("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"))
REFORMATTER = VideoReformatter()
PILLOW_ERRORS = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, OSError, RuntimeError, SyntaxError, TypeError),
    *(ValueError, struct.error, zlib.error),
)
"""What Pillow raises for damaged images."""
Image.MAX_IMAGE_PIXELS = None  # `decode_image` has a lower limit; that of Pillow is a warning, or another error


class ImageColumn:
    """A column of images with its reading position: reading on needs no search."""

    def __init__(self, file: pq.ParquetFile, name: str) -> None:
        if name not in file.schema_arrow.names:
            raise framing.InvalidFileError(f"column {name} is missing")
        self.name, self._file = name, file
        counts = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        self._group_starts = np.cumsum([0, *counts])
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._batch: Any = ()
        self._first_row = self._group_end = 0
        """First row of the batch, and the end of the row group it was read from."""

    def cell(self, row: int) -> Any:
        """Return the value of a row."""
        if not self._first_row <= row < self._group_end:
            group = int(np.searchsorted(self._group_starts, row, side="right")) - 1
            self._batches = self._file.iter_batches(ROWS_PER_BATCH, row_groups=[group], columns=[self.name])
            self._first_row, self._group_end = map(int, self._group_starts[group : group + 2])
            self._batch = ()
        while row >= self._first_row + len(self._batch):
            self._first_row += len(self._batch)
            batch = next(self._batches, None)
            if batch is None:
                raise framing.InvalidFileError("the file holds fewer rows than it states")
            self._batch = batch.column(0)
        return self._batch[row - self._first_row].as_py()


class ImageTable:
    """An open parquet file and the columns that were read."""

    def __init__(self, path: str) -> None:
        schema = pq.read_metadata(path).schema
        columns = map(schema.column, range(len(schema)))
        texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]  # one may be of all rows
        self._file = pq.ParquetFile(path, buffer_size=READ_BYTES, pre_buffer=False, read_dictionary=texts)
        self._columns: dict[str, ImageColumn] = {}

    def column(self, name: str) -> ImageColumn:
        if name not in self._columns:
            self._columns[name] = ImageColumn(self._file, name)
        return self._columns[name]

    def close(self) -> None:
        self._file.close()


TABLE_CACHE = framing.FileCache(ImageTable, MAX_OPEN_FILES)


def handle_request(request: dict[str, Any], out: BinaryIO) -> None:
    """Handle one request."""
    try:
        column = TABLE_CACHE.get(request["path"]).column(request["column"])
        rows, root = request["rows"], Path(request["root"])
        images = (decode_row(column, row, root) for row in rows)
        if request["op"] == "is_depth":
            with name_row(column, rows[0]):
                is_depth = is_depth_map(read_encoded(column.cell(rows[0]), root))
            framing.send_result(out, is_depth)
        elif request["op"] == "size":
            sizes = {pixels.shape[:2] for pixels in images}
            if len(sizes) > 1:
                raise framing.InvalidFileError(f"images of {column.name} differ in size: {describe_sizes(sizes)}")
            framing.send_result(out, sizes.pop())
        else:
            send_images(images, column.name, request, out)
    except Exception:
        TABLE_CACHE.drop(request["path"])  # the reader may be anywhere after an error
        raise


def send_images(images: Iterator[np.ndarray], name: str, request: dict[str, Any], out: BinaryIO) -> None:
    """Reply with images, resized by averaging; those of one size if none is requested."""
    first = next(images)
    size = tuple(request["size"] or first.shape[:2])
    framing.send_header(out, (len(request["rows"]), *size, 3), "uint8")
    framing.send_image(out, REFORMATTER, first, size)
    for pixels in images:
        if request["size"] is None and pixels.shape[:2] != size:
            sizes = describe_sizes({size, pixels.shape[:2]})
            raise framing.InvalidFileError(f"images of {name} differ in size: {sizes}")
        framing.send_image(out, REFORMATTER, pixels, size)
    framing.send_result(out, {})


def describe_sizes(sizes: set[tuple[int, ...]]) -> str:
    """Return sizes (height, width) as a list for a message."""
    return ", ".join("x".join(map(str, size)) for size in sorted(sizes))


def decode_row(column: ImageColumn, row: int, root: Path) -> np.ndarray:
    """Decode the image of a row."""
    with name_row(column, row):
        return decode_image(read_encoded(column.cell(row), root))


@contextmanager
def name_row(column: ImageColumn, row: int) -> Iterator[None]:
    """Raise `InvalidFileError` that names the row of an image that cannot be read."""
    try:
        yield
    except framing.InvalidFileError as error:
        raise framing.InvalidFileError(f"{column.name} of row {row}: {error}") from None
    except UnidentifiedImageError:
        raise framing.InvalidFileError(f"{column.name} of row {row} is no image ({', '.join(FORMATS)})") from None
    except PILLOW_ERRORS as error:
        raise framing.InvalidFileError(f"{column.name} of row {row} is not an intact image ({error})") from None


def read_encoded(cell: Any, root: Path) -> bytes:
    """Return the encoded image of a cell."""
    path = cell
    if isinstance(cell, dict):
        cell, path = cell.get("bytes"), cell.get("path")
    if isinstance(cell, bytes):
        return cell
    if not isinstance(path, str):
        raise framing.InvalidFileError(f"it holds {type(path).__name__}, neither an image nor the path of one")
    file = root / path
    if not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(root)):  # `resolve` fails on circular links
        raise framing.InvalidFileError(f"{path!r} leads out of the dataset's folder")
    if not file.is_file():
        raise framing.InvalidFileError(f"the file {path!r} does not exist in the dataset")
    return file.read_bytes()


def is_depth_map(encoded: bytes) -> bool:
    """Whether the pixels of an image are no colors."""
    with Image.open(io.BytesIO(encoded), formats=FORMATS) as image:
        return image.mode not in COLOR_MODES


def decode_image(encoded: bytes) -> np.ndarray:
    """Decode an image as viewers show it, uint8 [H, W, 3]."""
    with Image.open(io.BytesIO(encoded), formats=FORMATS) as image:
        if not 0 < image.width * image.height <= framing.MAX_PIXELS:
            raise framing.InvalidFileError(f"it claims to be {image.width}x{image.height}")
        if image.mode not in COLOR_MODES:
            raise framing.InvalidFileError(f"its pixels are {image.mode}, a depth map; features.views selects views")
        return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))


if __name__ == "__main__":
    framing.limit_memory(MAX_MEMORY_BYTES)
    framing.serve(handle_request, (pa.ArrowException, OSError))
