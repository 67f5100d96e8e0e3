"""Reads HDF5 files. Run by path (`python workers/hdf5.py`); imports h5py, PyAV and numpy and nothing else.

  {"op": "tree", "path"}                                -> D {"attributes": {group: {...}}, "datasets": {name: {...}}}
  {"op": "numbers", "path", "dataset"}                  -> float32 [T, D]
  {"op": "pictures", "path", "dataset", "rows", "size"} -> uint8 [T, H, W, 3]
  {"op": "text", "path", "dataset"}                     -> D the first string

Nothing but the file itself is read: what it refers to in other files is refused, and filters are not loaded for it.
"""

from __future__ import annotations

import os
from typing import Any, BinaryIO

os.environ["HDF5_PLUGIN_PRELOAD"] = "::"  # before the library starts: no filter is loaded from any folder

import h5py
import numpy as np
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter
from protocol import CHUNK, MAX_PIXELS, Fault, rgb, send, send_header, send_told, serve

LONGEST = 1 << 16
"""Characters up to which an attribute is told: whole scenes are stored beside what matters."""
DEEPEST = 8
"""Groups within groups: more is a trap."""


class OpenFile:
    """The file most recently asked for, kept open."""

    def __init__(self) -> None:
        self._state: tuple[Any, ...] = ()
        self._file: Any = None

    def get(self, path: str) -> Any:
        """The open file, opened anew if it has been written since."""
        status = os.stat(path)  # noqa: PTH116 (no pathlib needed for one call)
        state = (path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if state != self._state:
            if self._file is not None:
                self._file.close()
            self._state, self._file = (), h5py.File(path, "r", locking=False)
            self._state = state
        return self._file


OPEN, REFORMATTER = OpenFile(), VideoReformatter()


def answer(request: dict[str, Any], out: BinaryIO) -> None:
    """One request."""
    file = OPEN.get(request["path"])
    if request["op"] == "tree":
        found: dict[str, Any] = {"attributes": {}, "datasets": {}}
        walk(file, "", found)
        send_told(out, found)
    elif request["op"] == "numbers":
        send_numbers(dataset(file, request["dataset"]), out)
    elif request["op"] == "pictures":
        send_pictures(dataset(file, request["dataset"]), request["rows"], request["size"], out)
    else:
        value = dataset(file, request["dataset"]).asstr()[:1]
        send_told(out, str(value[0]) if len(value) else "")


def walk(group: Any, name: str, found: dict[str, Any]) -> None:
    """Note what lies in a group: attributes that are short, datasets by their full names."""
    if name.count("/") >= DEEPEST:
        raise Fault(f"its groups are nested deeper than {DEEPEST}")
    found["attributes"][name] = {key: plain(value) for key, value in group.attrs.items() if short(value)}
    for key in group:
        if isinstance(group.get(key, getlink=True), h5py.ExternalLink):
            raise Fault(f"{name}/{key} is a link to another file")
        if not isinstance(group.get(key, getlink=True), h5py.HardLink):
            continue
        item, full = group[key], f"{name}/{key}".lstrip("/")
        if isinstance(item, h5py.Group):
            walk(item, full, found)
        elif isinstance(item, h5py.Dataset):
            kind = "text" if h5py.check_string_dtype(item.dtype) else str(item.dtype)
            found["datasets"][full] = {"shape": list(item.shape or ()), "dtype": kind}


def short(value: Any) -> bool:
    """Whether an attribute is one number or a text that is not too long."""
    return (isinstance(value, str | bytes) and len(value) <= LONGEST) or isinstance(value, np.bool_ | np.number)


def plain(value: Any) -> Any:
    """An attribute as JSON knows it."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else value.item()


def dataset(file: Any, name: str) -> Any:
    """A dataset of the file. Raises `Fault` for one whose numbers lie elsewhere."""
    item = file[name]
    if not isinstance(item, h5py.Dataset):
        raise Fault(f"{name} is no dataset")
    if item.external or item.is_virtual:
        raise Fault(f"{name} lies in another file")
    return item


def send_numbers(item: Any, out: BinaryIO) -> None:
    """A dataset [T, ...] as float32 [T, D]."""
    if item.dtype.kind not in "fiub" or item.ndim < 1 or item.size > MAX_PIXELS:
        raise Fault(f"{item.name} holds {item.dtype} {list(item.shape)}, rows of numbers were expected")
    values = np.ascontiguousarray(item[()], dtype=np.float32).reshape(len(item), -1)
    send_header(out, values.shape, "float32")
    send(out, b"F", values.reshape(-1).view(np.uint8).data)
    send_told(out, {})


def send_pictures(item: Any, rows: list[int], size: list[int] | None, out: BinaryIO) -> None:
    """Some pictures of a dataset uint8 [T, H, W, 3], shrunk by averaging."""
    if item.dtype != np.uint8 or item.ndim != 4 or item.shape[3] != 3 or not size_fits(item.shape):
        raise Fault(f"{item.name} holds {item.dtype} {list(item.shape)}, uint8 pictures [T, H, W, 3] were expected")
    height, width = size or item.shape[1:3]
    send_header(out, (len(rows), height, width, 3), "uint8")
    for row in rows:
        pixels = np.ascontiguousarray(item[row])
        if size is not None and tuple(size) != pixels.shape[:2]:
            pixels = rgb(REFORMATTER, VideoFrame.from_ndarray(pixels, format="rgb24"), (height, width))
        for start in range(0, pixels.size, CHUNK):
            send(out, b"F", pixels.reshape(-1)[start : start + CHUNK].data)
    send_told(out, {})


def size_fits(shape: tuple[int, ...]) -> bool:
    """Whether its pictures have any pixels and not too many."""
    return 0 < shape[1] * shape[2] <= MAX_PIXELS


if __name__ == "__main__":
    serve(answer, (OSError, KeyError, RuntimeError, TypeError, IndexError))
