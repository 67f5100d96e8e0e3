"""Builds PNG files whose headers need not match their content."""

from __future__ import annotations

import struct
import zlib

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def build_png(width: int, height: int, *chunks: tuple[bytes, bytes]) -> bytes:
    """Return an 8-bit RGB PNG file that declares this size. `chunks`: (name, content) of further chunks."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return PNG_SIGNATURE + b"".join(_build_chunk(*chunk) for chunk in ((b"IHDR", header), *chunks, (b"IEND", b"")))


def _build_chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
