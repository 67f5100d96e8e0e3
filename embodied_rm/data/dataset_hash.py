"""Fast hashes of stored episodes, to detect that a dataset has changed."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from embodied_rm.data.source import EpisodeSource

EDGE_BYTES = 1 << 16
"""Bytes read at each end of a file. One end of an mp4 lists all frame sizes, one end of a parquet file its statistics.
"""


def hash_episodes(source: EpisodeSource, indices: Sequence[int]) -> str:
    """Return the SHA-256 of the names, instructions and files of episodes, in this order.

    A file contributes its size and both ends; large files are not read in full, and copies have equal hashes.
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
    """Return the size of a file and the SHA-256 of its two ends; for an unreadable file, the reason."""
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
