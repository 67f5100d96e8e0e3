"""JSON files that users bring."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from embodied_rm.data.video.mp4 import check_file
from embodied_rm.errors import DataError


def read_json(path: Path, what: str, kind: type) -> Any:
    """The JSON object or list (`kind`: dict or list) in a file. Raises `DataError` naming the file and its fault."""
    check_file(path, what)
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise DataError(f"{path}: not valid JSON ({error})") from None
    if not isinstance(content, kind):
        raise DataError(f"{path}: a JSON {'object' if kind is dict else 'list'} was expected")
    return content
