"""The handle on a child process that reads files: no byte of a user's video is demuxed or decoded in this process.

A damaged file can kill the process that reads it (PyAV issue 2344); here that costs one child and becomes a `DataError`
that names the file. One child serves a whole dataset; it starts with the first request (about 0.2 s).
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
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from embodied_rm.errors import DataError

PATIENCE_S = 120.0
"""How long a child may be silent before it counts as hung."""
PIPE_BYTES = 1 << 20
"""Room between the processes (where the system allows to set it): with 64 KB they wait for each other."""
CHUNK_HEADER = struct.Struct(">cQ")
MAX_TEXT = 1 << 28
"""Longest JSON reply that is believed, bytes."""
DTYPES = ("uint8", "float32")

Answer = tuple[npt.NDArray[Any] | None, Any]
"""Numbers, where they were asked for, and what is told of them."""
C = TypeVar("C", bound="Child")


class Child:
    """Answers requests in a child process. Usable from several threads; starts anew after a fork.

    `worker`: the script of the child, in `workers/`; `what`: what it reads, for messages.
    """

    worker: Path
    what: str

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._lock = threading.Lock()
        self._reaper: weakref.finalize[..., Any] | None = None

    def __reduce__(self: C) -> tuple[type[C], tuple[()]]:
        return type(self), ()

    def __enter__(self: C) -> C:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the child. The next request would start another."""
        if self._reaper is not None:
            self._reaper()
        self._process = self._reaper = None

    def ask(self, path: Path, op: str, *, numbers: bool = False, **request: Any) -> Answer:
        """Send one request about a file and take in the answer: an array if `numbers` are due, and the closing JSON.

        A child that dies is replaced and asked once more: it may have been killed for another reason than this file.
        Raises `DataError` with what it says of the file, or how it ended.
        """
        asked = {"op": op, "path": str(path.absolute()), **request}
        with self._lock:
            try:
                for last in (False, True):
                    process = self._running()
                    try:
                        return _exchange(process, asked, numbers)
                    except (EOFError, BrokenPipeError, TimeoutError) as end:
                        how = _obituary(process, end)
                        self.close()
                        if last or isinstance(end, TimeoutError):
                            raise DataError(f"{path}: the {self.what} {how} on this file; it is damaged") from None
                raise AssertionError
            except _RefusedError as refusal:
                raise DataError(f"{path}: {refusal}") from None
            except _TooLargeError as claim:
                self.close()  # what it would send is still in the pipe
                raise DataError(f"{path}: {claim}") from None
            except BaseException:
                self.close()  # interrupted in the middle of an answer: what is left in the pipe is nobody's
                raise

    def _running(self) -> subprocess.Popen[bytes]:
        """This process's child, started if there is none."""
        if self._process is not None and self._owner == os.getpid():
            return self._process
        if self._reaper is not None:
            self._reaper.detach()  # after a fork the child belongs to the other process
        command = [sys.executable, str(self.worker)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pipesize=PIPE_BYTES)
        self._process, self._owner = process, os.getpid()
        self._reaper = weakref.finalize(self, _end, process)
        return process


class _RefusedError(Exception):
    """The child's verdict on a file."""


class _TooLargeError(Exception):
    """An answer that no memory holds."""


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


def _exchange(process: subprocess.Popen[bytes], request: dict[str, Any], numbers: bool) -> Answer:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.flush()
    return _answer(process.stdout.fileno(), numbers)


def _answer(source: int, numbers: bool) -> Answer:
    """Read the chunks of one answer from a file descriptor."""
    array: npt.NDArray[Any] | None = None
    target: memoryview | None = None
    filled = 0
    while True:
        kind, length = CHUNK_HEADER.unpack(_text(source, CHUNK_HEADER.size))
        if kind == b"E":
            raise _RefusedError(_text(source, length).decode())
        if kind == b"H" and numbers and array is None:
            described = json.loads(_text(source, length))
            assert described["dtype"] in DTYPES
            try:
                array = np.empty(described["shape"], described["dtype"])
            except MemoryError:
                raise _TooLargeError(f"it claims {described['shape']} numbers") from None
            target = array.reshape(-1).view(np.uint8).data
        elif kind == b"F" and target is not None and filled + length <= len(target):
            _fill(source, target[filled : filled + length])
            filled += length
        elif kind == b"D" and (array is None) != numbers and filled == (0 if target is None else len(target)):
            return array, json.loads(_text(source, length))
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
