"""PNG files put together by hand, which say what no honest one says."""

from __future__ import annotations

import struct
import zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def png_of(width: int, height: int, *chunks: tuple[bytes, bytes]) -> bytes:
    """A file of 8-bit RGB that says it is that large; `chunks`: name and content of what lies in it."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return SIGNATURE + b"".join(_chunk(*one) for one in ((b"IHDR", head), *chunks, (b"IEND", b"")))


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
