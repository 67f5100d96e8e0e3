"""What episodes are made of, told at a glance: enough to notice that they are no longer the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from embodied_rm.data.source import EpisodeSource

EDGE_BYTES = 1 << 16
"""Bytes that are read at either end of a file. At one of them an mp4 lists the size of every frame, a parquet file its
statistics."""


def hash_episodes(source: EpisodeSource, indices: Sequence[int]) -> str:
    """SHA-256 of what these episodes are called, ask for and are read from.

    A file counts by its size and its two ends: a corpus is not read whole for it, and one that was copied is the same.
    """
    digest = hashlib.sha256(json.dumps(source.views).encode())
    file_hashes: dict[Path, str] = {}
    for index in indices:
        meta = source.meta[index]
        record = [meta.name, meta.length, meta.instruction, meta.episode_index, meta.dataset_from_index]
        for path in source.files(index):
            if path not in file_hashes:
                file_hashes[path] = hash_file(path)
            record.append(file_hashes[path])
        digest.update(json.dumps(record).encode())
    return digest.hexdigest()


def hash_file(path: Path) -> str:
    """The size and the SHA-256 of both ends of a file; of one that cannot be read, why."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            edges = b""
            for offset in (0, max(0, size - EDGE_BYTES)):
                file.seek(offset)
                edges += file.read(EDGE_BYTES)
    except OSError as error:
        return f"not read: {error.strerror}"
    return f"{size} {hashlib.sha256(edges).hexdigest()}"
