"""Write a file through a pipe, for libraries that only log that the operating system refuses to write, or then hang."""

import os
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

CHUNK_BYTES = 1 << 20
TIMEOUT_S = 120.0  # for the rest of the file, after the block


@contextmanager
def piped_file(path: Path) -> Iterator[str]:
    """Yield the path of a pipe into a file, which its writer must close before the block ends.

    Raises `OSError` at the end of the block if the file could not be written, `TimeoutError` if the writer holds it.
    """
    read_end, write_end = os.pipe()
    copied: Future[None] = Future()
    # An executor would wait for its thread without a limit.
    Thread(target=run_copy, args=(read_end, path, copied), daemon=True).start()
    try:
        yield f"/dev/fd/{write_end}"
    finally:
        os.close(write_end)
    copied.result(TIMEOUT_S)


def run_copy(read_end: int, path: Path, copied: Future[None]) -> None:
    """Copy a pipe into a file, and tell how that ended."""
    try:
        copy_pipe(read_end, path)
    except BaseException as error:  # re-raised in the waiting thread
        copied.set_exception(error)
    else:
        copied.set_result(None)


def copy_pipe(read_end: int, path: Path) -> None:
    """Copy a pipe into a file, and read it to its end in any case: the writer would wait for ever."""
    chunk = bytearray(CHUNK_BYTES)  # there may be no memory for another one
    with open(read_end, "rb", buffering=0) as pipe:
        try:
            with path.open("wb") as file:
                while num_bytes := pipe.readinto(chunk):
                    file.write(memoryview(chunk)[:num_bytes])
        finally:
            while pipe.readinto(chunk):
                pass
