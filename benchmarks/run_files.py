"""Files of a run folder: whether each is whole, and what two equal runs have in common. For interruptions.py."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import av
import pyarrow.parquet as pq
from PIL import Image
from safetensors import safe_open

from embodied_rm.run_lock import LOCK_FILE

PARTIAL_MARK = ".partial"  # in the path of a file that says of itself that it is not whole


def check_video(path: Path) -> None:
    """Raise an error if a video cannot be decoded to its end."""
    with av.open(path) as container:
        stream = container.streams.video[0]
        count = sum(1 for _ in container.decode(stream))
        if not count or count != stream.frames:
            raise ValueError(f"{count} of {stream.frames} frames")


def check_tensors(path: Path) -> None:
    """Raise an error if a file of tensors is not whole."""
    with safe_open(path, "pt") as tensors:
        for name in tensors.keys():  # noqa: SIM118  not a mapping
            tensors.get_tensor(name)


def check_page(path: Path) -> None:
    """Raise an error if an HTML page has no end."""
    if not path.read_text().rstrip().endswith("</html>"):
        raise ValueError("no end")


CHECKS: Mapping[str, Callable[[Path], object]] = {
    ".html": check_page,
    ".json": lambda path: json.loads(path.read_text()),
    ".jsonl": lambda path: [json.loads(line) for line in path.read_text().splitlines()],
    ".mp4": check_video,
    ".parquet": pq.read_table,
    ".png": lambda path: Image.open(path).load(),
    ".safetensors": check_tensors,
}
"""What reads a file to its end, by the end of its name."""


def result_files(folder: Path) -> list[Path]:
    """Return the files that claim to be whole."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != LOCK_FILE)
    return [path for path in files if PARTIAL_MARK not in str(path.relative_to(folder))]


def half_files(folder: Path) -> list[str]:
    """Return the files that claim to be whole and cannot be read to their end, each with the reason."""
    found = []
    for path in result_files(folder):
        try:
            CHECKS.get(path.suffix, Path.read_bytes)(path)
        except Exception as error:  # whatever a reader raises, the file is not whole
            found.append(f"{path.relative_to(folder)}: {type(error).__name__}: {error}")
    return found


def result_values(folder: Path) -> dict[str, str]:
    """Return the content of a run: every value of JSON by its path, and the SHA-256 of every other file."""
    values: dict[str, str] = {}
    for path in result_files(folder):
        name = str(path.relative_to(folder))
        if path.suffix in {".json", ".jsonl"}:
            lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
            values |= {key: repr(value) for key, value in json_leaves([json.loads(line) for line in lines], name)}
        else:
            values[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return values


def json_leaves(value: Any, name: str) -> Iterator[tuple[str, object]]:
    """Yield every value within lists and objects of JSON, with its path."""
    if isinstance(value, Mapping | list) and value:
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, item in items:
            yield from json_leaves(item, f"{name}/{key}")
    else:
        yield name, value
