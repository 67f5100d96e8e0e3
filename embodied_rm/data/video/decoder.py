"""The handle on the child process that decodes: no byte of a user's video is demuxed or decoded in this process.

A damaged mp4 can kill the process that decodes it (PyAV issue 2344); here that costs one child and becomes a
`DataError` that names the file. One child serves a whole dataset; it starts with the first request (about 0.2 s).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import struct
import subprocess
import sys
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from embodied_rm.data.video.mp4 import check_mp4
from embodied_rm.errors import DataError
from embodied_rm.types import Frames

WORKER = Path(__file__).with_name("decode_worker.py")
PATIENCE_S = 120.0
"""How long a decoder may be silent before it counts as hung."""
PIPE_BYTES = 1 << 20
"""Room between the processes (where the system allows to set it): with 64 KB they wait for each other."""
CHUNK_HEADER = struct.Struct(">cQ")
MAX_TEXT = 1 << 28
"""Longest JSON reply that is believed, bytes."""

Times = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class VideoInfo:
    """What a video file holds."""

    times: Times
    """float64 [T], s: when each frame is shown; strictly rising."""
    fps: float
    height: int
    width: int

    def __len__(self) -> int:
        return len(self.times)


class Decoder:
    """Probes and reads mp4 files in a child process. Usable from several threads; starts anew after a fork."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._lock = threading.Lock()
        self._reaper: weakref.finalize[..., Any] | None = None

    def __reduce__(self) -> tuple[type[Decoder], tuple[()]]:
        return Decoder, ()

    def __enter__(self) -> Decoder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the child. The next request would start another."""
        if self._reaper is not None:
            self._reaper()
        self._process = self._reaper = None

    def probe(self, path: Path) -> VideoInfo:
        """Count the frames that are really there, and decode the first and the last.

        Raises `DataError` when the file is missing, a git-lfs pointer, not an mp4, cut short or not decodable.
        """
        check_mp4(path)
        _, answer = self._ask({"op": "probe", "path": str(path.absolute())}, path, None)
        times = np.array(answer["pts"], np.float64)
        return VideoInfo(times=times, fps=answer["fps"], height=answer["height"], width=answer["width"])

    def read(self, path: Path, times: npt.ArrayLike, fps: float, size: tuple[int, int] | None = None) -> Frames:
        """The frames shown at `times` (s, in any order, each met within 0.5/fps): uint8 [T, H, W, 3].

        `size` (height, width) shrinks while decoding, so full-size frames are never held.
        Raises `DataError` when a frame is missing or cannot be decoded.
        """
        wanted = np.asarray(times, np.float64)
        if len(wanted) == 0 or not np.isfinite(wanted).all():
            raise DataError(f"{path}: one time or more was expected, all finite, got {wanted.tolist()}")
        if size is not None and not min(size) >= 1:
            raise DataError(f"{path}: size must be (height, width), both >= 1, got {size}")
        check_mp4(path)
        order = np.argsort(wanted, kind="stable")
        request = {
            "op": "read",
            "path": str(path.absolute()),
            "timestamps": wanted[order].tolist(),
            "tolerance": 0.5 / fps,
            "size": size,
        }
        frames, _ = self._ask(request, path, len(wanted))
        assert frames is not None
        if np.array_equal(order, np.arange(len(order))):
            return frames
        return frames[np.argsort(order, kind="stable")]

    def _ask(self, request: dict[str, Any], path: Path, count: int | None) -> tuple[Frames | None, dict[str, Any]]:
        """Send one request and take in the answer: `count` frames if any are due, and the closing JSON.

        A child that dies is replaced and asked once more: it may have been killed for another reason than this file.
        """
        with self._lock:
            try:
                for last in (False, True):
                    process = self._running()
                    try:
                        return _exchange(process, request, count)
                    except (EOFError, BrokenPipeError, TimeoutError) as end:
                        how = _obituary(process, end)
                        self.close()
                        if last or isinstance(end, TimeoutError):
                            raise DataError(f"{path}: the video decoder {how} on this file; it is damaged") from None
                raise AssertionError
            except _RefusedError as refusal:
                raise DataError(f"{path}: {refusal}") from None
            except BaseException:
                self.close()  # interrupted in the middle of an answer: what is left in the pipe is nobody's
                raise

    def _running(self) -> subprocess.Popen[bytes]:
        """This process's child, started if there is none."""
        if self._process is not None and self._owner == os.getpid():
            return self._process
        if self._reaper is not None:
            self._reaper.detach()  # after a fork the child belongs to the other process
        command = [sys.executable, "-P", str(WORKER)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pipesize=PIPE_BYTES)
        self._process, self._owner = process, os.getpid()
        self._reaper = weakref.finalize(self, _end, process)
        return process


class _RefusedError(Exception):
    """The child's verdict on a file."""


def _obituary(process: subprocess.Popen[bytes], end: Exception) -> str:
    """How a child went that did not finish its answer, as a predicate."""
    if isinstance(end, TimeoutError):
        return f"gave no answer for {PATIENCE_S:.0f} s"
    code = process.wait(PATIENCE_S)
    return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _exchange(
    process: subprocess.Popen[bytes], request: dict[str, Any], count: int | None
) -> tuple[Frames | None, dict[str, Any]]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.flush()
    return _answer(process.stdout.fileno(), count)


def _answer(source: int, count: int | None) -> tuple[Frames | None, dict[str, Any]]:
    """Read the chunks of one answer from a file descriptor."""
    frames: Frames | None = None
    target: memoryview | None = None
    filled = 0
    while True:
        kind, length = CHUNK_HEADER.unpack(_text(source, CHUNK_HEADER.size))
        if kind == b"E":
            raise _RefusedError(_text(source, length).decode())
        if kind == b"H" and count is not None and frames is None:
            shape = json.loads(_text(source, length))
            frames = np.empty((count, shape["height"], shape["width"], 3), np.uint8)
            target = frames.data.cast("B")
        elif kind == b"F" and target is not None and filled + length <= len(target):
            _fill(source, target[filled : filled + length])
            filled += length
        elif kind == b"D" and (target is None) == (count is None) and filled == (0 if target is None else len(target)):
            return frames, json.loads(_text(source, length))
        else:
            raise EOFError("not an answer")


def _text(source: int, length: int) -> bytes:
    if length > MAX_TEXT:
        raise EOFError("not an answer")
    content = bytearray(length)
    _fill(source, memoryview(content))
    return bytes(content)


def _fill(source: int, target: memoryview) -> None:
    """Fill the whole buffer; `EOFError` when the child is gone and `TimeoutError` when it is silent."""
    ready = select.poll()
    ready.register(source, select.POLLIN)
    while len(target):
        if not ready.poll(PATIENCE_S * 1000):
            raise TimeoutError
        got = os.readv(source, [target])
        if got == 0:
            raise EOFError
        target = target[got:]
