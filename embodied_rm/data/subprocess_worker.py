"""Client of a child process that reads files: user videos are never demuxed or decoded in this process.

A damaged file can crash the process that reads it (PyAV issue 2344). Here it costs one child process and raises a
`DataError` that names the file. One child serves a whole dataset; it starts with the first request (about 0.2 s), and
serves another dataset afterwards.
"""

import atexit
import contextlib
import json
import math
import os
import select
import struct
import subprocess
import sys
import threading
import weakref
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from embodied_rm.errors import DataError
from embodied_rm.free_memory import free_memory_bytes

REPLY_TIMEOUT_S = 120.0  # time without output after which a child counts as hung
PIPE_BYTES = 1 << 20  # pipe capacity, where the system allows it: with 64 KB the processes wait for each other
CHUNK_HEADER = struct.Struct(">cQ")
MAX_TEXT_BYTES = 1 << 28  # maximum length of a JSON reply
MAX_MEMORY_SHARE = 0.75  # share of the free memory that an array may need; its callers copy parts of it
ALLOWED_DTYPES = ("uint8", "float32")
MAX_IDLE_PROCESSES = 2  # of one script

WorkerReply = tuple[npt.NDArray[Any] | None, Any]  # array, if one was requested, and the JSON value of the reply


_WORKERS: weakref.WeakSet["SubprocessWorker"] = weakref.WeakSet()
_IDLE: dict[Path, list[subprocess.Popen[bytes]]] = {}
"""Script -> children that wait for another dataset. It has no lock, since operations of lists are atomic, and a garbage
collection may add a child at any time, also in a thread that would hold the lock."""


class SubprocessWorker:
    """Sends requests to a child process. Thread-safe; starts a new child after a fork.

    Subclasses set `script` (in `workers/`) and `description`, a noun for messages.
    """

    script: Path
    description: str

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner_pid = 0
        self._lock = threading.Lock()
        self._finalizer: weakref.finalize[..., Any] | None = None
        _WORKERS.add(self)

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the child to another worker, or end it in the middle of a request. The next request takes another."""
        if not self._lock.acquire(blocking=False):
            self._end_process()
            return
        try:
            if self._finalizer is not None:
                self._finalizer()
            self._process = self._finalizer = None
        finally:
            self._lock.release()

    def _end_process(self) -> None:
        """End the child, whose pipe may hold the rest of a reply."""
        process, finalizer = self._process, self._finalizer
        self._process = self._finalizer = None
        if process is not None and finalizer is not None and finalizer.detach() is not None:
            _kill_process(process)

    def request(self, path: Path, op: str, *, expect_array: bool = False, **fields: Any) -> WorkerReply:
        """Send an operation on a file and its further fields, and read the reply, with an array if `expect_array`.

        A child that dies is replaced and the request is repeated once: the file may not be the cause. If the worker
        rejects the file, crashes on it, or hangs, a `DataError` is raised.
        """
        message = {"op": op, "path": str(path.absolute()), **fields}
        with self._lock:
            try:
                for last_attempt in (False, True):
                    process = self._ensure_process()
                    try:
                        return _send_request(process, message, expect_array)
                    except (EOFError, BrokenPipeError, TimeoutError) as failure:
                        reason = _describe_exit(process, failure)
                        self._end_process()
                        if last_attempt or isinstance(failure, TimeoutError):
                            raise DataError(f"{path}: the {self.description} {reason} on this file") from None
                raise AssertionError
            except _RejectedFileError as rejection:
                raise DataError(f"{path}: {rejection}") from None
            except _ReplyTooLargeError as too_large:
                self._end_process()  # the rest of the reply is still in the pipe
                raise DataError(f"{path}: {too_large}") from None
            except BaseException:
                self._end_process()  # interrupted in the middle of a reply: the rest of it is still in the pipe
                raise

    def _ensure_process(self) -> subprocess.Popen[bytes]:
        """Return the child of this process; take one that waits, or start it."""
        if self._process is not None and self._owner_pid == os.getpid():
            return self._process
        if self._finalizer is not None:
            self._finalizer.detach()  # after a fork the child belongs to the other process
        process = _take_idle(self.script) or _start_process(self.script)
        self._process, self._owner_pid = process, os.getpid()
        self._finalizer = weakref.finalize(self, _keep_idle, self.script, process, self._owner_pid)
        return process


def _start_process(script: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(script)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pipesize=PIPE_BYTES)


def _take_idle(script: Path) -> subprocess.Popen[bytes] | None:
    """Return a child that waits, None: there is none."""
    while True:
        try:
            process = _IDLE.get(script, []).pop()
        except IndexError:
            return None
        if process.poll() is None:
            return process
        _kill_process(process)


def _keep_idle(script: Path, process: subprocess.Popen[bytes], owner_pid: int) -> None:
    """Let a child close its files and wait for the next dataset; end it if enough children wait."""
    if os.getpid() != owner_pid:
        return
    assert process.stdin is not None
    waiting = _IDLE.setdefault(script, [])
    if len(waiting) < MAX_IDLE_PROCESSES:
        with contextlib.suppress(OSError):  # it has ended
            process.stdin.write(b"\n")
            process.stdin.flush()
            waiting.append(process)
            return
    _kill_process(process)


def _reset_after_fork() -> None:
    """Drop what belongs to the parent: children, and locks that its threads held at the fork."""
    _IDLE.clear()
    for worker in list(_WORKERS):
        worker._lock = threading.Lock()


@atexit.register
def _end_idle() -> None:
    for process in chain.from_iterable(_IDLE.values()):
        _kill_process(process)


os.register_at_fork(after_in_child=_reset_after_fork)


class _RejectedFileError(Exception):
    """The worker rejected the file."""


class _ReplyTooLargeError(Exception):
    """A reply that does not fit into memory."""


def _describe_exit(process: subprocess.Popen[bytes], failure: Exception) -> str:
    """Describe the end of a child that did not finish its reply, as a predicate."""
    if isinstance(failure, TimeoutError):
        return f"gave no answer for {REPLY_TIMEOUT_S:.0f} s"
    exit_code = process.wait(REPLY_TIMEOUT_S)
    return f"was killed by signal {-exit_code}" if exit_code < 0 else f"ended with code {exit_code}"


def _kill_process(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _send_request(process: subprocess.Popen[bytes], request: dict[str, Any], expect_array: bool) -> WorkerReply:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.flush()
    return _read_reply(process.stdout.fileno(), expect_array)


def _read_reply(fd: int, expect_array: bool) -> WorkerReply:
    """Read the chunks of one reply from a file descriptor."""
    array: npt.NDArray[Any] | None = None
    buffer: memoryview | None = None
    filled = 0
    while True:
        chunk_type, length = CHUNK_HEADER.unpack(_read_bytes(fd, CHUNK_HEADER.size))
        if chunk_type == b"E":
            raise _RejectedFileError(_read_bytes(fd, length).decode())
        if chunk_type == b"H" and expect_array and array is None:
            header = json.loads(_read_bytes(fd, length))
            assert header["dtype"] in ALLOWED_DTYPES
            array = _allocate(header["shape"], np.dtype(header["dtype"]))
            buffer = array.reshape(-1).view(np.uint8).data
        elif chunk_type == b"F" and buffer is not None and filled + length <= len(buffer):
            _read_into(fd, buffer[filled : filled + length])
            filled += length
        elif chunk_type == b"D" and (array is None) != expect_array and filled == len(buffer or b""):
            return array, json.loads(_read_bytes(fd, length))
        else:
            raise EOFError("not an answer")


def _allocate(shape: list[int], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Allocate an array; `_ReplyTooLargeError` if it needs most of the free memory, as a long video does."""
    num_bytes, free_bytes = math.prod(shape) * dtype.itemsize, free_memory_bytes()
    with contextlib.suppress(MemoryError):  # a limit of the process (`ulimit -v`) may be lower
        if num_bytes <= MAX_MEMORY_SHARE * free_bytes:
            return np.empty(shape, dtype)
    needed = f"{'x'.join(map(str, shape))} numbers at once, {num_bytes >> 20} MiB"
    raise _ReplyTooLargeError(f"{needed}, do not fit into the free memory, {free_bytes >> 20} MiB")


def _read_bytes(fd: int, length: int) -> bytes:
    if length > MAX_TEXT_BYTES:
        raise EOFError("not an answer")
    content = bytearray(length)
    _read_into(fd, memoryview(content))
    return bytes(content)


def _read_into(fd: int, buffer: memoryview) -> None:
    """Fill the whole buffer. Raise `EOFError` if the child is gone, `TimeoutError` if it sends nothing."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    while len(buffer):
        if not poller.poll(REPLY_TIMEOUT_S * 1000):
            raise TimeoutError
        num_read = os.readv(fd, [buffer])
        if num_read == 0:
            raise EOFError
        buffer = buffer[num_read:]
