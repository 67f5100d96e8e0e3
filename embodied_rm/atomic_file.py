"""Atomic file replacement: readers see the old content or the new one, never a partial file.

A file that several processes update, such as a results page, is updated by one at a time.
"""

import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
"""Fails on an existing file or link, so a planted link is never written through."""
NO_LOCK_ERRORS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # file systems without locks


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


@contextmanager
def update_in_turn(path: Path) -> Iterator[None]:
    """Create the folder of a file, and wait until no other process updates a file of that folder.

    The lock is that of the folder: a file that is replaced has none that lasts, and no file is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with ignore_missing_locks():
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def ignore_missing_locks() -> Iterator[None]:
    """Go on without a lock on a file system that has none."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_LOCK_ERRORS:
            raise
