"""TensorBoard event files, written without the package tensorboard.

A file is a sequence of records with masked CRC-32C checksums. Each record is one protobuf message `Event`. Scalars need
no other part of the format.

Format: tensorflow/core/lib/io/record_writer.h and tensorflow/core/util/event.proto.
"""

import math
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

EVENT_FILE_PREFIX = "events.out.tfevents."  # prefix of event file names; a number follows
EVENT_FILE_VERSION = b"brain.Event:2"
"""From this version on, the start of a session at a step discards that step and later ones of earlier files."""
WIRE_VARINT, WIRE_FIXED64, WIRE_BYTES, WIRE_FIXED32 = 0, 1, 2, 5  # protobuf wire types
CRC32C_POLYNOMIAL = 0x82F63B78  # CRC-32C (Castagnoli) polynomial, bit-reversed


class EventFileWriter:
    """Event file of one session of a run. It is flushed after every row, so rows survive a kill."""

    name = "TensorBoard"
    recoverable_errors: tuple[type[Exception], ...] = (OSError,)

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stream: BinaryIO | None = None

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Append the scalars of a step.

        The first row creates the file and marks the start of a session. TensorBoard then discards this step and later
        ones of earlier files, which an interrupted run wrote after its last checkpoint.
        """
        if self._stream is None:
            self._stream = next_event_path(self._folder).open("xb")
            now = time.time()
            self._stream.write(encode_record(encode_event(now, 0, encode_field(3, EVENT_FILE_VERSION))))
            self._stream.write(encode_record(encode_event(now, step, encode_session_start())))
        self._stream.write(encode_record(encode_event(time.time(), step, encode_summary(values))))
        self._stream.flush()

    def close(self, *, failed: bool) -> None:
        """Close the file, if there is one."""
        if self._stream is not None:
            self._stream.close()


def next_event_path(folder: Path) -> Path:
    """Return the path of a file that sorts after all event files of a folder. Names contain the creation time, s."""
    suffixes = [path.name.removeprefix(EVENT_FILE_PREFIX) for path in folder.glob(f"{EVENT_FILE_PREFIX}*")]
    latest = max((int(suffix) for suffix in suffixes if suffix.isdecimal()), default=0)
    return folder / f"{EVENT_FILE_PREFIX}{max(int(time.time()), latest + 1):010d}"


def encode_record(content: bytes) -> bytes:
    """Encode a record: length and content, each with its checksum."""
    length = struct.pack("<Q", len(content))
    return b"".join((length, struct.pack("<I", masked_crc(length)), content, struct.pack("<I", masked_crc(content))))


def encode_event(wall_time: float, step: int, payload: bytes) -> bytes:
    """Encode an `Event` at a Unix time (s) and a step >= 0, with an encoded field as its payload."""
    header = struct.pack("<Bd", 1 << 3 | WIRE_FIXED64, wall_time)
    return header + bytes([2 << 3 | WIRE_VARINT]) + encode_varint(step) + payload


def encode_session_start() -> bytes:
    """Encode the `Event` field that marks the start of a session."""
    return encode_field(7, bytes([1 << 3 | WIRE_VARINT, 1]))


def encode_summary(values: Mapping[str, float]) -> bytes:
    """Encode the `Event` field with scalars by tag."""
    fields = (encode_field(1, tag.encode()) + encode_simple_value(value) for tag, value in values.items())
    return encode_field(5, b"".join(encode_field(1, field) for field in fields))


def encode_simple_value(value: float) -> bytes:
    """Encode the `Summary.Value` field of a scalar as float32; out-of-range values become infinite."""
    try:
        return struct.pack("<Bf", 2 << 3 | WIRE_FIXED32, value)
    except OverflowError:
        return encode_simple_value(math.copysign(math.inf, value))


def encode_field(number: int, content: bytes) -> bytes:
    """Encode a protobuf field of bytes, text or a message."""
    return bytes([number << 3 | WIRE_BYTES]) + encode_varint(len(content)) + content


def encode_varint(value: int) -> bytes:
    """Encode an integer >= 0 as a protobuf varint."""
    assert value >= 0
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def masked_crc(content: bytes) -> int:
    """Return the masked CRC-32C: rotated and shifted, so that a checksum of data with checksums differs."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = crc >> 8 ^ CRC32C_TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def make_crc_table() -> tuple[int, ...]:
    """Return the CRC-32C lookup table of all byte values."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (CRC32C_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return tuple(table)


CRC32C_TABLE = make_crc_table()
