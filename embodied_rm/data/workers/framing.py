"""How a worker answers. Workers run by path and import this file from beside them, and nothing else of the package.

One request per line of standard input (JSON), one reply on standard output: chunks of `struct ">cQ"` (kind, length) and
a payload.

    H {"shape", "dtype"}, F bytes ..., D {...}     numbers, in any number of parts, and what is told of them
    D {...}                                        what is told
    E text                                         the fault, a clause that follows the file's name
"""

from __future__ import annotations

import json
import signal
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

import numpy as np
from av.video.frame import VideoFrame
from av.video.reformatter import Interpolation, VideoReformatter

MAX_PIXELS = 8192 * 8192
"""Largest image that is decoded: a damaged or hostile header must not ask for gigabytes."""
CHUNK_BYTES = 1 << 18
"""Bytes of images gathered before they are sent."""
RESIZE_INTERPOLATION = Interpolation.AREA | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT
"""Shrinks by averaging. Without the two flags colors come back 1.2 levels darker on average (43 against 52 dB)."""


class InvalidFileError(Exception):
    """What is wrong with the file, as a clause."""


def resize_rgb(reformatter: VideoReformatter, frame: VideoFrame, size: Sequence[int]) -> np.ndarray:
    """uint8 [H, W, 3] of that size (height, width); shrunk by averaging."""
    height, width = size
    resized = reformatter.reformat(
        frame, width=width, height=height, format="rgb24", interpolation=RESIZE_INTERPOLATION, threads=1
    )
    return resized.to_ndarray()


def send_chunk(out: BinaryIO, chunk_type: bytes, payload: bytes | memoryview) -> None:
    """One chunk of a reply."""
    out.write(struct.pack(">cQ", chunk_type, len(payload)))
    out.write(payload)


def send_header(out: BinaryIO, shape: Sequence[int], dtype: str) -> None:
    """What numbers follow."""
    send_chunk(out, b"H", json.dumps({"shape": list(shape), "dtype": dtype}).encode())


def send_result(out: BinaryIO, result: Any) -> None:
    """The end of a reply."""
    send_chunk(out, b"D", json.dumps(result).encode())


def serve(
    handle_request: Callable[[dict[str, Any], BinaryIO], None], expected_errors: tuple[type[Exception], ...]
) -> None:
    """Answer requests until standard input closes; `expected`: what a faulty file may raise beside `Fault`."""
    handled_errors: tuple[type[Exception], ...] = (MemoryError, ValueError, OverflowError, *expected_errors)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it closes our input
    with open(sys.stdout.fileno(), "wb", closefd=False) as out:
        for line in sys.stdin.buffer:
            try:
                handle_request(json.loads(line), out)
            except InvalidFileError as error:
                send_chunk(out, b"E", str(error).encode())
            except handled_errors as error:
                send_chunk(out, b"E", f"it cannot be decoded ({error})".encode())
            out.flush()
