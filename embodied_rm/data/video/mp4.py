"""Checks of a video file that need no decoder."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

from embodied_rm.data.dataset_files import check_file
from embodied_rm.errors import DataError

ALLOWED_FIRST_BOXES = frozenset({b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"styp"})


def check_mp4(path: Path) -> None:
    """Check that a file is a complete mp4, by its box headers."""
    check_file(path, "video")
    size = path.stat().st_size
    with path.open("rb") as stream:
        boxes = _top_level_boxes(stream, path, size)
    for name, meaning in ((b"moov", "index"), (b"mdat", "images")):
        if name not in boxes and b"moof" not in boxes:
            raise DataError(f"{path}: the video is cut short: its {meaning} ({name!r}) is missing")


def _top_level_boxes(stream: BinaryIO, path: Path, size: int) -> set[bytes]:
    """Return the names of the top-level boxes (ISO/IEC 14496-12, 4.2) after checking that each is inside the file."""
    boxes: set[bytes] = set()
    offset = 0
    while offset < size:
        stream.seek(offset)
        name, box_bytes = _box_header(stream, size - offset)
        if offset == 0 and name not in ALLOWED_FIRST_BOXES:
            raise DataError(f"{path}: not an mp4 video")
        if box_bytes < 8 or box_bytes > size - offset:
            reason = f"{size - offset} bytes are left where {name!r} needs {box_bytes}"
            raise DataError(f"{path}: the video is cut short: {reason}")
        boxes.add(name)
        offset += box_bytes
    return boxes


def _box_header(stream: BinaryIO, remaining: int) -> tuple[bytes, int]:
    """Read name and length of the box at the stream's position; `remaining` bytes of the file are left."""
    header = stream.read(16)
    if len(header) < 8:
        return header[4:8], 8
    length, name = struct.unpack(">I4s", header[:8])
    if length == 1:
        return name, struct.unpack(">Q", header[8:])[0] if len(header) == 16 else 16
    return name, remaining if length == 0 else length
