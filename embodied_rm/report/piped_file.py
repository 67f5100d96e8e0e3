"""Write a file through a pipe, for libraries that only log that the operating system refuses to write, or then hang."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

CHUNK_BYTES = 1 << 20


@contextmanager
def piped_file(path: Path) -> Iterator[str]:
    """Yield the path of a pipe into a file, which its writer must close before the block ends.

    Raises `OSError` at the end of the block if the file could not be written.
    """
    read_end, write_end = os.pipe()
    with ThreadPoolExecutor(1) as pool:
        copied = pool.submit(copy_pipe, read_end, path)
        try:
            yield f"/dev/fd/{write_end}"
        finally:
            os.close(write_end)
        copied.result()


def copy_pipe(read_end: int, path: Path) -> None:
    """Copy a pipe into a file, and read it to its end in any case: the writer would wait for ever."""
    with open(read_end, "rb", buffering=0) as pipe:
        try:
            with path.open("wb") as file:
                while chunk := pipe.read(CHUNK_BYTES):
                    file.write(chunk)
        finally:
            while pipe.read(CHUNK_BYTES):
                pass
