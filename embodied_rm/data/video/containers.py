"""Container formats of videos: which one a file is, and whether it is complete."""

import shlex
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

from embodied_rm.data.dataset_files import check_file
from embodied_rm.errors import DataError

FIRST_BOXES = frozenset({b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"styp"})
"""Boxes with which an mp4 may begin."""
EBML_ID, SEGMENT_ID = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"
UNKNOWN_SIZE = -1  # of a Matroska segment that was written to a stream
GIF_TRAILER = b"\x3b"


def check_video(path: Path) -> str:
    """Return FFmpeg's name of the container of a video; `DataError` unless the file is one and complete."""
    check_file(path, "video")
    with path.open("rb") as stream:
        start = stream.read(12)
        for name, container in CONTAINERS.items():
            if container.is_start(start):
                container.check(stream, path, path.stat().st_size)
                return name
    kinds = ", ".join(container.title for container in CONTAINERS.values())
    raise DataError(f"{path}: none of the videos that are read ({kinds}); `{conversion_command(path)}` converts one")


def conversion_command(path: Path) -> str:
    """Return the shell command that converts a video of another format, beside itself."""
    target = path.with_suffix(".mp4") if path.suffix != ".mp4" else path.with_stem(f"{path.stem}_converted")
    return f"ffmpeg -i {shlex.quote(str(path))} {shlex.quote(str(target))}"


def _check_mp4(stream: BinaryIO, path: Path, size: int) -> None:
    """Check the top-level boxes (ISO/IEC 14496-12, 4.2)."""
    boxes = set(_iter_boxes(stream, path, size))
    for name, meaning in ((b"moov", "index"), (b"mdat", "images")):
        if name not in boxes and b"moof" not in boxes:
            raise DataError(f"{path}: the video is cut short: its {meaning} ({name!r}) is missing")


def _iter_boxes(stream: BinaryIO, path: Path, size: int) -> Iterator[bytes]:
    """Yield the names of the top-level boxes after checking that each is inside the file."""
    offset = 0
    while offset < size:
        stream.seek(offset)
        name, box_bytes = _read_box_header(stream, size - offset)
        _check_inside(path, name, box_bytes, size - offset)
        yield name
        offset += box_bytes


def _read_box_header(stream: BinaryIO, remaining: int) -> tuple[bytes, int]:
    """Read name and length of the box at the stream's position; `remaining` bytes of the file are left."""
    header = stream.read(16)
    if len(header) < 8:
        return header[4:8], 8
    length, name = struct.unpack(">I4s", header[:8])
    if length == 1:
        return name, struct.unpack(">Q", header[8:])[0] if len(header) == 16 else 16
    return name, remaining if length == 0 else length


def _check_inside(path: Path, name: bytes, num_bytes: int, remaining: int) -> None:
    if num_bytes < 8 or num_bytes > remaining:
        raise DataError(f"{path}: the video is cut short: {remaining} bytes are left where {name!r} needs {num_bytes}")


def _check_matroska(stream: BinaryIO, path: Path, size: int) -> None:
    """Check the length of the segment (RFC 8794, RFC 9559), unless it was written to a stream and states none."""
    stream.seek(len(EBML_ID))
    header_bytes = _read_ebml_size(stream)
    stream.seek(max(header_bytes, 0), 1)
    if stream.read(len(SEGMENT_ID)) != SEGMENT_ID:
        raise DataError(f"{path}: the video is cut short: its images (b'Segment') are missing")
    segment_bytes = _read_ebml_size(stream)
    if segment_bytes != UNKNOWN_SIZE:
        _check_inside(path, b"Segment", segment_bytes, size - stream.tell())


def _read_ebml_size(stream: BinaryIO) -> int:
    """Read a length of one to eight bytes, of which the first one says how many there are."""
    first = stream.read(1)
    if not first or not first[0]:
        return 0
    num_bytes = 9 - first[0].bit_length()
    bits = 7 * num_bytes
    value = int.from_bytes(first + stream.read(num_bytes - 1).ljust(num_bytes - 1, b"\0")) & ((1 << bits) - 1)
    return UNKNOWN_SIZE if value == (1 << bits) - 1 else value


def _check_avi(stream: BinaryIO, path: Path, size: int) -> None:
    """Check the RIFF chunks, of which a long video has several."""
    offset = 0
    while offset < size:
        stream.seek(offset)
        header = stream.read(8)
        if len(header) < 8 or header[:4] != b"RIFF":
            return  # other writers append what they like
        chunk_bytes = 8 + struct.unpack("<I", header[4:])[0]
        _check_inside(path, b"RIFF", chunk_bytes, size - offset)
        offset += chunk_bytes + chunk_bytes % 2


def _check_gif(stream: BinaryIO, path: Path, size: int) -> None:
    """Check that the file ends with a trailer; some writers fill up with zeros behind it."""
    stream.seek(max(0, size - 1024))
    if not stream.read().rstrip(b"\0").endswith(GIF_TRAILER):
        raise DataError(f"{path}: the video is cut short: its trailer is missing")


class Container(NamedTuple):
    """A container format."""

    title: str
    is_start: Callable[[bytes], bool]  # whether a file starts with these 12 bytes
    check: Callable[[BinaryIO, Path, int], None]  # (stream, path, bytes) raises `DataError` for an incomplete file


CONTAINERS: Mapping[str, Container] = {
    "mp4": Container("mp4 and mov", lambda start: start[4:8] in FIRST_BOXES, _check_mp4),
    "matroska": Container("Matroska and WebM", lambda start: start.startswith(EBML_ID), _check_matroska),
    "avi": Container("AVI", lambda start: start[:4] == b"RIFF" and start[8:] == b"AVI ", _check_avi),
    "gif": Container("GIF", lambda start: start[:6] in (b"GIF87a", b"GIF89a"), _check_gif),
}
"""FFmpeg's name of a demuxer -> container."""
