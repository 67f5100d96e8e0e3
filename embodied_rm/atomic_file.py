"""Files that are replaced whole: a reader sees the old content or the new one, never half of one."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
"""A file that is there already, or a link that somebody laid in its place, is an error and is never written through."""


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Give a new, empty file next to `path`; rename it over `path` when the block ends without an exception.

    The name of the new file is random, so that nobody can foresee it. After an exception it is removed and `path` is
    left as it was.

    Args:
        path: The file to replace. A link is replaced by a file; its target is left alone.

    Yields:
        The path of the new file, to be written by name.

    Raises:
        OSError: Where the folder cannot be written.
    """
    partial = path.with_name(f".{secrets.token_hex(8)}.partial")
    os.close(os.open(partial, NEW_FILE_FLAGS, 0o666))
    try:
        yield partial
        with partial.open("rb") as stream:
            os.fsync(stream.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_atomic(path: Path, content: str | bytes) -> None:
    """Replace a file by one of that content, flushed to disk first.

    Raises:
        OSError: Where the folder cannot be written.
    """
    with atomic_file(path) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
