"""Read untrusted files: a file of a few bytes on disk can claim terabytes, and a pipe or a device has no end."""

import json
import stat
from pathlib import Path
from typing import Any

from embodied_rm.errors import DataError

MAX_TEXT_BYTES = 1 << 26  # parsed JSON takes up to 24 times its text


def read_text(path: Path, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """Return the content of a text file, of at most `max_bytes`, with its line ends.

    Raises:
        DataError: It is not UTF-8, too large, or not a file.
        OSError: It does not exist, or may not be read.
    """
    try:
        return read_limited(path, max_bytes, "text").decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not a text file ({error})") from None


def read_limited(path: Path, max_bytes: int, kind: str) -> bytes:
    """Return the content of a file; `DataError` if it is too large for its kind, or not a file."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise DataError(f"{path}: a file of {kind} was expected, this is not a regular file")
    if status.st_size > max_bytes:
        raise DataError(f"{path}: the file has {status.st_size >> 20} MiB, {max_bytes >> 20} are possible for {kind}")
    return path.read_bytes()


def parse_json_lines(path: Path) -> list[Any]:
    """Parse the values in a JSONL file, one a line; `DataError` names the line that is not JSON."""
    values = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        try:
            values += [json.loads(line)] if line.strip() else []
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}: line {number} is not valid JSON ({error})") from None
    return values
