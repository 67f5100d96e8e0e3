"""Refusals of the operating system as one sentence: no space, no right, not a folder, too many files."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

REASONS = {
    errno.ENOSPC: "there is no space left",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file would be larger than is allowed",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "there is no permission",
    errno.EPERM: "the operation is not permitted",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EISDIR: "it is a folder, not a file",
    errno.EEXIST: "it exists already, and is no folder",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ELOOP: "there are too many links, or a link where none may be",
    errno.EMFILE: "the process has too many open files",
    errno.ENFILE: "the system has too many open files",
    errno.EIO: "the device failed",
    errno.ENODEV: "the device is gone",
    errno.ESTALE: "the file system is gone",
    errno.ETXTBSY: "the file is in use",
}
"""Errors that the user or the system must mend; any other one is a bug, with a traceback."""
NUMBER_IN_TEXT = re.compile(r"(?:os error|[Ee]rrno):? ?(\d+)")
"""How libraries that are not in Python name the number: safetensors and pyarrow."""


class RefusalError(Exception):
    """The operating system refused something that a command needs; the message is a sentence."""


def refusal_number(error: BaseException) -> int | None:
    """Return the number of the error by which the operating system refused something; None if it did not."""
    number = error.errno if isinstance(error, OSError) else None
    if number is None:
        match = NUMBER_IN_TEXT.search(str(error))
        number = int(match[1]) if match else None
    return number if number in REASONS else None


def describe_refusal(error: BaseException, folder: Path | None) -> str | None:
    """Return the refusal with the path, or the folder that is written to; None if it is no refusal."""
    number = refusal_number(error)
    if number is None:
        return None
    name = getattr(error, "filename", None)
    path = Path(os.fsdecode(name)) if isinstance(name, str | bytes) else folder
    return f"{path}: {REASONS[number]}" if path else REASONS[number]
