"""Atomic file replacement: readers see the old content or the new one, never a partial file."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
"""Fails on an existing file or link, so a planted link is never written through."""


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a new, empty file next to `path`; rename it over `path` if the block ends without an exception.

    The name of the new file is random and cannot be predicted. After an exception the new file is removed and `path` is
    unchanged. A link at `path` is replaced by a file; its target is unchanged.
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
    """Replace the content of a file; the new content is flushed to disk before the rename."""
    with atomic_file(path) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
