"""Message format of the workers. A worker runs by path and imports only this file of the package.

Each line of standard input is a JSON request. Each reply on standard output is a sequence of chunks. A chunk is a
header, `struct ">cQ"` (type, length), and a payload.

    H {"shape", "dtype"}, F bytes ..., D {...}     an array, in any number of parts, and a JSON value
    D {...}                                        a JSON value
    E text                                         an error, as a clause that follows the file name

An empty line has no reply: the worker closes its files, since the next requests are about another dataset.
"""

from __future__ import annotations

import json
import logging
import resource
import signal
import struct
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from av.video.frame import VideoFrame
from av.video.reformatter import Interpolation, VideoReformatter

MAX_PIXELS = 8192 * 4320  # maximum pixels of an image, those of 8K: decoders keep up to 20 frames of a small file
CHUNK_BYTES = 1 << 18  # size of a chunk of images
RESIZE_INTERPOLATION = Interpolation.AREA | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT
"""Resizes by averaging. Without the two flags colors are 1.2 levels darker on average (PSNR 43 instead of 52 dB)."""


class InvalidFileError(Exception):
    """The issue of a file, as a clause."""


class FileCache:
    """Keeps the most recently read files open, so that sequential episodes need no seek."""

    def __init__(self, open_file: Callable[..., Any], max_open: int) -> None:
        self._open_file, self._max_open = open_file, max_open
        FILE_CACHES.append(self)
        self._open: OrderedDict[str, tuple[tuple[int, ...], Any]] = OrderedDict()

    def get(self, path: str, *options: Any) -> Any:
        """Return the open file, which `open_file(path, *options)` opens; reopen it if it was rewritten."""
        status = Path(path).stat()
        version = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if path in self._open and self._open[path][0] != version:
            self.drop(path)
        if path not in self._open:
            self._open[path] = version, self._open_file(path, *options)
            while len(self._open) > self._max_open:
                self.drop(next(iter(self._open)))
        self._open.move_to_end(path)
        return self._open[path][1]

    def clear(self) -> None:
        """Close all files."""
        for path in list(self._open):
            self.drop(path)

    def drop(self, path: str) -> None:
        """Close a file if it is open."""
        if path in self._open:
            self._open.pop(path)[1].close()


FILE_CACHES: list[FileCache] = []  # of this process


def resize_rgb(reformatter: VideoReformatter, frame: VideoFrame, size: Sequence[int]) -> np.ndarray:
    """Resize a frame to (height, width) by averaging; returns uint8 [H, W, 3]."""
    height, width = size
    resized = reformatter.reformat(frame, width, height, "rgb24", interpolation=RESIZE_INTERPOLATION, threads=1)
    return resized.to_ndarray()


def limit_memory(num_bytes: int) -> None:
    """Let this process take so much more memory. Then allocations fail, where the system would end other processes."""
    used_pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit, hard = used_pages * resource.getpagesize() + num_bytes, resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def send_chunk(out: BinaryIO, chunk_type: bytes, payload: bytes | memoryview) -> None:
    """Send one chunk."""
    out.write(struct.pack(">cQ", chunk_type, len(payload)))
    out.write(payload)


def send_header(out: BinaryIO, shape: Sequence[int], dtype: str) -> None:
    """Announce an array."""
    send_chunk(out, b"H", json.dumps({"shape": list(shape), "dtype": dtype}).encode())


def send_image(out: BinaryIO, reformatter: VideoReformatter, pixels: np.ndarray, size: Sequence[int]) -> None:
    """Send an image uint8 [H, W, 3], resized to (height, width), as a part of an array."""
    if tuple(size) != pixels.shape[:2]:
        pixels = resize_rgb(reformatter, VideoFrame.from_ndarray(pixels, format="rgb24"), size)
    for start in range(0, pixels.size, CHUNK_BYTES):
        send_chunk(out, b"F", np.ascontiguousarray(pixels).reshape(-1)[start : start + CHUNK_BYTES].data)


def send_result(out: BinaryIO, result: Any) -> None:
    """Send the end of a reply."""
    send_chunk(out, b"D", json.dumps(result).encode())


def serve(
    handle_request: Callable[[dict[str, Any], BinaryIO], None], expected_errors: tuple[type[Exception], ...]
) -> None:
    """Handle requests until standard input closes; a damaged file may raise `InvalidFileError` or an expected error."""
    handled_errors: tuple[type[Exception], ...] = (MemoryError, ValueError, OverflowError, *expected_errors)
    warnings.simplefilter("ignore")  # what libraries say about a damaged file: its reply says it
    logging.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and closes our input
    with open(sys.stdout.fileno(), "wb", closefd=False) as out:
        for line in sys.stdin.buffer:
            if line == b"\n":
                for cache in FILE_CACHES:
                    cache.clear()
                continue
            try:
                handle_request(json.loads(line), out)
            except InvalidFileError as error:
                send_chunk(out, b"E", str(error).encode())
            except handled_errors as error:
                send_chunk(out, b"E", f"it cannot be decoded ({error})".encode())
            out.flush()
