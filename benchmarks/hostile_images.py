"""Image files that are small, or cheap to send, and expensive to decode. For tests of the service."""

from __future__ import annotations

import struct
import zlib

from png_files import build_png

SIDE_PX = 1024


def jpeg_with_scans(num_scans: int) -> bytes:
    """Return a progressive JPEG whose scans of 12 bytes pass over all 16384 blocks of 1024 x 1024 pixels."""
    frame = struct.pack(">2sHBHHBBBB", b"\xff\xc2", 11, 8, SIDE_PX, SIDE_PX, 1, 1, 0x11, 0)
    quantization = b"\xff\xdb\x00\x43\x00" + b"\x01" * 64
    huffman = b"\xff\xc4\x00\x14\x10" + bytes([1, *[0] * 15]) + b"\xe0"  # the code 0: 2^14 blocks end here
    scan = b"\xff\xda\x00\x08\x01\x01\x00\x01\x3f\x00" + b"\x00\x01"
    return b"\xff\xd8" + quantization + frame + huffman + scan * num_scans + b"\xff\xd9"


def jpeg_with_segments(num_segments: int) -> bytes:
    """Return a JPEG with empty segments of metadata before its only scan."""
    image = jpeg_with_scans(1)
    return image[:2] + b"\xff\xe1\x00\x02" * num_segments + image[2:]


def jpeg_with_junk(num_bytes: int) -> bytes:
    """Return a JPEG with bytes between its segments, which decoders skip one by one."""
    image = jpeg_with_scans(1)
    return image[:2] + b"\xff" * num_bytes + image[2:]


def png_with_chunks(num_chunks: int) -> bytes:
    """Return a PNG with empty private chunks."""
    private = (b"prVt", b"")
    return build_png(8, 8, *[private] * num_chunks, (b"IDAT", zlib.compress(bytes(8 * (1 + 8 * 3)))))
