"""JSON files written by users."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from embodied_rm.data.video.mp4 import check_file
from embodied_rm.errors import DataError


def read_json(path: Path, description: str, expected_type: type) -> Any:
    """Read a JSON object or list; `description` is a noun for the kind of file, `expected_type` dict or list."""
    check_file(path, description)
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise DataError(f"{path}: not valid JSON ({error})") from None
    if not isinstance(content, expected_type):
        raise DataError(f"{path}: a JSON {'object' if expected_type is dict else 'list'} was expected")
    return content


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
