"""Files of a dataset: local and complete when they are read, inside its folder when they are written."""

import json
import os
import re
from pathlib import Path
from typing import Any

from embodied_rm.atomic_file import write_atomic
from embodied_rm.errors import DataError
from embodied_rm.text_file import read_text

LFS_POINTER = b"version https://git-lfs"
"""First bytes of a git-lfs pointer, the text file that replaces a file not yet downloaded."""


def check_file(path: Path, kind: str) -> None:
    """Raise `DataError` unless the path is a local, non-empty file and not a git-lfs pointer."""
    if not path.exists():
        raise DataError(f"{path}: the {kind} file does not exist")
    if not path.is_file():
        raise DataError(f"{path}: a {kind} file was expected, this is not a regular file")
    if path.stat().st_size == 0:
        raise DataError(f"{path}: the {kind} file is empty")
    with path.open("rb") as stream:
        if stream.read(len(LFS_POINTER)) == LFS_POINTER:
            raise DataError(f"{path}: this is a git-lfs pointer, not the {kind} itself; fetch it with `git lfs pull`")


def check_utf8(path: Path) -> None:
    """Raise `DataError` for a path that parquet files may not have."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise DataError(f"{path}: a name in this path is not UTF-8, which parquet files need: rename it") from None


def is_inside(folder: Path, path: Path) -> bool:
    """Whether a path lies in the folder after its links are resolved."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))  # `resolve` fails on circular links


def read_json(path: Path, description: str, expected_type: type) -> Any:
    """Read a JSON object or list; `description` is a noun for the kind of file, `expected_type` dict or list."""
    check_file(path, description)
    text = read_text(path)
    try:
        content = parse_json(text)
    except ValueError as error:
        raise DataError(f"{path}: not valid JSON ({error})") from None
    if not isinstance(content, expected_type):
        raise DataError(f"{path}: a JSON {'object' if expected_type is dict else 'list'} was expected")
    return content


def parse_json(text: str) -> Any:
    """Parse JSON of a dataset; raise `ValueError` for any text that is none, or that is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def split_json_lines(text: str) -> list[str]:
    """Return the lines of a JSONL text that are not blank. Only "\\n" ends one: strings may hold other separators."""
    return [line for line in text.split("\n") if line.strip()]


def dump_json_like(text: str, value: Any) -> str:
    """Serialize a value in the style of an existing text: its indentation, separators, escapes and line endings.

    If `json.dumps` wrote the text and the value is unchanged, the result equals the text.
    """
    multiline = re.match(r"\s*[\[{]\r?\n([ \t]*)", text)
    colon = ":" if multiline is None and re.search(r'":\S', text) else ": "
    comma = "," if multiline is not None or colon == ":" else ", "
    indent = None if multiline is None else multiline[1]
    body = json.dumps(value, indent=indent, separators=(comma, colon), ensure_ascii=text.isascii())
    result = body + text[len(text.rstrip()) :]
    return result.replace("\n", "\r\n") if "\r\n" in text else result


def write_inside(root: Path, path: Path, content: str | bytes) -> None:
    """Replace a file of the dataset `root`. A link within the dataset is kept and its target replaced.

    A path that leads out of the dataset, through its own link or that of a parent folder, raises `DataError`.
    """
    write_atomic(_resolve_inside(root, path), content)


def remove_inside(root: Path, path: Path) -> None:
    """Remove a file of the dataset `root` if it exists."""
    _resolve_inside(root, path).unlink(missing_ok=True)


def _resolve_inside(root: Path, path: Path) -> Path:
    if not is_inside(root, path):
        raise DataError(f"{path}: leads out of the dataset's folder {root}, so nothing is written there")
    return Path(os.path.realpath(path))
