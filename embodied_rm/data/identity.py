"""What episodes are made of, told at a glance: enough to notice that they are no longer the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from embodied_rm.data.source import EpisodeSource

EDGE = 1 << 16
"""Bytes that are read at either end of a file. At one of them an mp4 lists the size of every frame, a parquet file its
statistics."""


def episodes_identity(source: EpisodeSource, rows: Sequence[int]) -> str:
    """SHA-256 of what these episodes are called, ask for and are read from.

    A file counts by its size and its two ends: a corpus is not read whole for it, and one that was copied is the same.
    """
    digest = hashlib.sha256(json.dumps(source.views).encode())
    files: dict[Path, str] = {}
    for row in rows:
        meta = source.meta[row]
        told = [meta.name, meta.length, meta.instruction, meta.number, meta.first]
        for path in source.files(row):
            if path not in files:
                files[path] = file_identity(path)
            told.append(files[path])
        digest.update(json.dumps(told).encode())
    return digest.hexdigest()


def file_identity(path: Path) -> str:
    """The size and the SHA-256 of both ends of a file; of one that cannot be read, why."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            ends = b""
            for start in (0, max(0, size - EDGE)):
                file.seek(start)
                ends += file.read(EDGE)
    except OSError as fault:
        return f"not read: {fault.strerror}"
    return f"{size} {hashlib.sha256(ends).hexdigest()}"
