"""Lock of a run folder, or of a dataset that is annotated: one process writes into it, a second one learns which.

The operating system holds the lock (`flock`) and releases it when the process ends, however that happens. The file says
who holds it. A lock of another machine that did not release it cannot be checked from here.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from embodied_rm.atomic_file import ignore_missing_locks
from embodied_rm.errors import UserError

LOCK_FILE = ".lock"  # in the run folder, while a process writes there


@contextmanager
def lock_folder(folder: Path, kind: str = "run folder", remedy: str = "wait, or name another out=") -> Iterator[None]:
    """Hold the lock of an existing folder; `UserError` if another process holds it.

    `kind` is a noun for the folder, and `remedy` says what its user can do, both for the message.
    """
    path = folder / LOCK_FILE
    descriptor = open_locked(path, kind, remedy)
    try:
        owner = {"host": socket.gethostname(), "pid": os.getpid(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(owner).encode(), 0)
        yield
    finally:
        path.unlink(missing_ok=True)  # while the lock is held: the next owner creates its own file
        os.close(descriptor)


def open_locked(path: Path, kind: str, remedy: str) -> int:
    """Open and lock the file of a lock, and return its descriptor; `UserError` if another process holds it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0), 0o666)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                raise UserError(f"{path} is no file of a lock: delete it")
            if not try_lock(descriptor):
                who = describe_owner(read_owner(descriptor))
                raise UserError(f"the {kind} {path.parent} is in use by {who}: {remedy}")
            owner = read_owner(descriptor)
            if owner and owner.get("host") != socket.gethostname():
                raise UserError(
                    f"the {kind} {path.parent} was not released by {describe_owner(owner)}: if that process has "
                    f"ended, delete {path}"
                )
            if is_file_of(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the owner before has just removed this file


def try_lock(descriptor: int) -> bool:
    """Lock an open file; False if another process holds the lock. Without locks of the file system, nothing is held."""
    try:
        with ignore_missing_locks():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_file_of(descriptor: int, path: Path) -> bool:
    """Return whether an open file is still the one at a path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def read_owner(descriptor: int) -> dict[str, Any]:
    """Return who wrote the file of a lock; {} if it has just been created."""
    try:
        owner = json.loads(os.pread(descriptor, 4096, 0))
    except (ValueError, RecursionError):
        return {}
    return owner if isinstance(owner, dict) else {}


def describe_owner(owner: dict[str, Any]) -> str:
    """Return in words which process holds a lock."""
    if not {"pid", "host", "since"} <= owner.keys():
        return "another process"
    return f"process {owner['pid']} on {owner['host']}, since {owner['since']}"
