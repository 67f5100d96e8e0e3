"""Read HDF5 files. Run by path (`python workers/read_hdf5.py`); imports only h5py, PyAV and numpy.

  {"op": "tree", "path"}                              -> D {"attributes": {group: {...}}, "datasets": {name: {...}}}
  {"op": "array", "path", "dataset"}                  -> float32 [T, D]; [1, 1] of one number
  {"op": "images", "path", "dataset", "rows", "size"} -> uint8 [T, H, W, 3]
  {"op": "texts", "path", "dataset"}                  -> D [text, ...], one per run of equal ones

Only the file itself is read: references to other files are rejected, and filter plugins are not loaded.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from itertools import groupby
from typing import Any, BinaryIO

os.environ["HDF5_PLUGIN_PRELOAD"] = "::"  # before the library starts: no filter plugin is loaded

import framing
import h5py
import numpy as np
from av.video.reformatter import VideoReformatter

MAX_ATTRIBUTE_CHARS = 1 << 16  # maximum length of a whole attribute; simulators store whole scenes as attributes
MAX_ENTRY_CHARS = 1 << 12  # maximum length of an entry that is kept of a longer JSON object
MAX_ATTRIBUTE_ENTRIES = 16  # maximum number of entries of an array that is an attribute
MAX_GROUP_DEPTH = 8  # maximum nesting of groups
MAX_CHUNK_BYTES = 1 << 29  # of decompressed values: 3 MB on disk can state 4 GiB
MAX_TEXT_ROWS = 1_000_000  # maximum length of a dataset of texts
MAX_TEXT_CHARS = 1 << 20  # maximum length of all different texts of a dataset
TEXT_ROWS, TEXT_BYTES = 256, 1 << 20  # maximum size of a block of texts that is read at once
MAX_MEMORY_BYTES = 1 << 31  # of the arrays and chunks in memory


def open_file(path: str) -> h5py.File:
    """Open a file. A chunk is kept after it is decompressed: by default a large one is decompressed for each frame."""
    return h5py.File(path, "r", locking=False, rdcc_nbytes=MAX_CHUNK_BYTES)


FILE_CACHE = framing.FileCache(open_file, max_open=1)
REFORMATTER = VideoReformatter()


def handle_request(request: dict[str, Any], out: BinaryIO) -> None:
    """Handle one request."""
    file = FILE_CACHE.get(request["path"])
    if request["op"] == "tree":
        tree: dict[str, Any] = {"attributes": {}, "datasets": {}}
        walk_group(file, "", tree)
        framing.send_result(out, tree)
    elif request["op"] == "array":
        send_array(find_dataset(file, request["dataset"]), out)
    elif request["op"] == "images":
        send_images(find_dataset(file, request["dataset"]), request["rows"], request["size"], out)
    else:
        framing.send_result(out, unique_texts(find_dataset(file, request["dataset"])))


def walk_group(group: Any, name: str, tree: dict[str, Any]) -> None:
    """Add the attributes of a group that are simple, and its datasets (by full name), to the tree."""
    if name.count("/") >= MAX_GROUP_DEPTH:
        raise framing.InvalidFileError(f"its groups are nested deeper than {MAX_GROUP_DEPTH}")
    tree["attributes"][name] = {key: to_json_value(value) for key, value in group.attrs.items() if is_simple(value)}
    for key in group:
        if isinstance(group.get(key, getlink=True), h5py.ExternalLink):
            raise framing.InvalidFileError(f"{name}/{key} is a link to another file")
        if not isinstance(group.get(key, getlink=True), h5py.HardLink):
            continue
        item, full_name = group[key], f"{name}/{key}".lstrip("/")
        if isinstance(item, h5py.Group):
            walk_group(item, full_name, tree)
        elif isinstance(item, h5py.Dataset):
            dtype = "text" if h5py.check_string_dtype(item.dtype) else str(item.dtype)
            shape = [0] if item.shape is None else list(item.shape)  # a dataset can have a type and no values
            entry = {"shape": shape, "dtype": dtype, "is_written": is_written(item)}
            tree["datasets"][full_name] = entry


def is_written(item: Any) -> bool:
    """Whether the file holds all values of a dataset; one of other files is rejected when it is read."""
    if item.shape is None or item.external or item.is_virtual:
        return True
    if item.chunks is None:
        return item.id.get_storage_size() >= item.nbytes
    return item.id.get_num_chunks() >= math.prod(map(math.ceil, np.divide(item.shape, item.chunks)))


def is_simple(value: Any) -> bool:
    """Whether an attribute is a number or a text, or an array of a few of them."""
    if isinstance(value, np.ndarray):
        return value.size <= MAX_ATTRIBUTE_ENTRIES and all(map(is_simple, value.reshape(-1)))
    return isinstance(value, str | bytes | np.bool_ | np.number)


def to_json_value(value: Any) -> Any:
    """Convert an attribute to a JSON value, an array of one to its entry; None for a long text but a JSON object."""
    if isinstance(value, np.ndarray):
        entries = list(map(to_json_value, value.reshape(-1)))
        return entries[0] if len(entries) == 1 else entries
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    if not isinstance(text, str):
        return value.item()
    return text if len(text) <= MAX_ATTRIBUTE_CHARS else shorten_json(text)


def shorten_json(text: str) -> str | None:
    """Return a long JSON object without its long entries; None for another text."""
    try:
        content = json.loads(text)
        return json.dumps(drop_long_entries(content)) if isinstance(content, dict) else None
    except (ValueError, RecursionError):
        return None


def drop_long_entries(content: dict[str, Any]) -> dict[str, Any]:
    """Drop long texts and lists from an object and the objects inside it."""
    entries = {key: drop_long_entries(entry) if isinstance(entry, dict) else entry for key, entry in content.items()}
    return {key: entry for key, entry in entries.items() if isinstance(entry, dict) or is_short(entry)}


def is_short(entry: Any) -> bool:
    """Whether an entry of a JSON object is kept."""
    return len(json.dumps(entry)) <= MAX_ENTRY_CHARS


def find_dataset(file: Any, name: str) -> Any:
    """Return a dataset whose values are in this file."""
    item = file[name]
    if not isinstance(item, h5py.Dataset):
        raise framing.InvalidFileError(f"{name} is not a dataset")
    if item.external or item.is_virtual:
        raise framing.InvalidFileError(f"{name} lies in another file")
    chunk_bytes = math.prod(item.chunks or ()) * item.dtype.itemsize
    if chunk_bytes > MAX_CHUNK_BYTES:
        limit = f"{MAX_CHUNK_BYTES >> 20} are possible: rewrite it with smaller chunks"
        raise framing.InvalidFileError(f"{name} has chunks of {chunk_bytes >> 20} MiB, {limit}")
    return item


def send_array(item: Any, out: BinaryIO) -> None:
    """Send a dataset [T, ...] as float32 [T, D], or one number as [1, 1]."""
    if item.dtype.kind not in "fiub" or item.shape is None or item.size > framing.MAX_PIXELS:
        content = f"{item.dtype} {list(item.shape or ())}"
        raise framing.InvalidFileError(f"{item.name} holds {content}, rows of numbers were expected")
    values = np.ascontiguousarray(item[()], dtype=np.float32).reshape((*item.shape, 1)[0], -1)
    framing.send_header(out, values.shape, "float32")
    framing.send_chunk(out, b"F", values.reshape(-1).view(np.uint8).data)
    framing.send_result(out, {})


def unique_texts(item: Any) -> list[str]:
    """Return the texts of a dataset, one per run of equal ones."""
    texts, num_chars = [], 0
    for text, _ in groupby(iterate_texts(item)):
        num_chars += len(text) + 1
        if num_chars > MAX_TEXT_CHARS:
            raise framing.InvalidFileError(f"{item.name} has different texts of more than {MAX_TEXT_CHARS} characters")
        texts.append(text)
    return texts


def iterate_texts(item: Any) -> Iterator[str]:
    """Yield the texts of a dataset, read a block of rows at a time."""
    if item.shape == ():
        yield item.asstr()[()]
    elif item.shape:
        if item.size > MAX_TEXT_ROWS:
            raise framing.InvalidFileError(f"{item.name} has {item.size} texts, {MAX_TEXT_ROWS} are possible")
        num_rows = max(1, min(TEXT_ROWS, TEXT_BYTES // item.dtype.itemsize))
        for start in range(0, len(item), num_rows):
            yield from item.asstr()[start : start + num_rows].reshape(-1)


def send_images(item: Any, frame_indices: list[int], size: list[int] | None, out: BinaryIO) -> None:
    """Send some images of a dataset uint8 [T, H, W, 3], resized by averaging."""
    if item.dtype != np.uint8 or item.ndim != 4 or item.shape[3] != 3 or not size_fits(item.shape):
        content = f"{item.dtype} {list(item.shape)}"
        raise framing.InvalidFileError(f"{item.name} holds {content}, uint8 images [T, H, W, 3] were expected")
    height, width = size or item.shape[1:3]
    framing.send_header(out, (len(frame_indices), height, width, 3), "uint8")
    for frame_index in frame_indices:
        framing.send_image(out, REFORMATTER, np.ascontiguousarray(item[frame_index]), (height, width))
    framing.send_result(out, {})


def size_fits(shape: tuple[int, ...]) -> bool:
    """Whether the images have a valid number of pixels."""
    return 0 < shape[1] * shape[2] <= framing.MAX_PIXELS


if __name__ == "__main__":
    framing.limit_memory(MAX_MEMORY_BYTES)
    framing.serve(handle_request, (OSError, KeyError, RuntimeError, TypeError, IndexError))
