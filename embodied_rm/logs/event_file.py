"""TensorBoard's event files, written without TensorBoard.

A file is a sequence of records, each framed by masked CRC-32C sums; each record is one protobuf message, `Event`. That
is all of the format that scalars need, so nothing has to be installed to write them, nor imported.

Format: tensorflow/core/lib/io/record_writer.h and tensorflow/core/util/event.proto.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

EVENT_FILE_PREFIX = "events.out.tfevents."
"""Of the names of event files; a number follows."""
EVENT_FILE_VERSION = b"brain.Event:2"
"""From this version on a session that starts at a step takes back what earlier files of the folder say of it and of all
later ones."""
WIRE_VARINT, WIRE_FIXED64, WIRE_BYTES, WIRE_FIXED32 = 0, 1, 2, 5
"""Protobuf's ways of storing a field."""
CRC32C_POLYNOMIAL = 0x82F63B78
"""Of CRC-32C, Castagnoli's, bits reversed."""


class EventFileWriter:
    """The event file of one start of a run. Flushed after every row: it may be watched while it grows, and what was
    written survives a kill."""

    name = "TensorBoard"
    recoverable_errors: tuple[type[Exception], ...] = (OSError,)

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stream: BinaryIO | None = None

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Append the scalars of a step. The first row opens the file, and takes back its step and all later ones in the
        folder's earlier files: a run that died wrote them after what it goes on from."""
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
    """A file that comes after all event files of a folder: they are read by their names, which begin with the second
    of their making."""
    suffixes = [path.name.removeprefix(EVENT_FILE_PREFIX) for path in folder.glob(f"{EVENT_FILE_PREFIX}*")]
    latest = max((int(suffix) for suffix in suffixes if suffix.isdecimal()), default=0)
    return folder / f"{EVENT_FILE_PREFIX}{max(int(time.time()), latest + 1):010d}"


def encode_record(content: bytes) -> bytes:
    """A record of an event file: its length and its content, each with its sum."""
    length = struct.pack("<Q", len(content))
    return b"".join((length, struct.pack("<I", masked_crc(length)), content, struct.pack("<I", masked_crc(content))))


def encode_event(wall_time: float, step: int, payload: bytes) -> bytes:
    """The message `Event`; `what`: its field that says what happened."""
    return (
        struct.pack("<Bd", 1 << 3 | WIRE_FIXED64, wall_time)
        + bytes([2 << 3 | WIRE_VARINT])
        + encode_varint(step)
        + payload
    )


def encode_session_start() -> bytes:
    """The field of an `Event` that says: the session starts here."""
    return encode_field(7, bytes([1 << 3 | WIRE_VARINT, 1]))


def encode_summary(values: Mapping[str, float]) -> bytes:
    """The field of an `Event` that holds scalars by their tags."""
    return encode_field(
        5,
        b"".join(
            encode_field(1, encode_field(1, tag.encode()) + encode_simple_value(value)) for tag, value in values.items()
        ),
    )


def encode_simple_value(value: float) -> bytes:
    """The field of a `Summary.Value` that is a number; what float32 cannot hold is infinite."""
    try:
        return struct.pack("<Bf", 2 << 3 | WIRE_FIXED32, value)
    except OverflowError:
        return encode_simple_value(math.copysign(math.inf, value))


def encode_field(number: int, content: bytes) -> bytes:
    """A protobuf field that is text, or another message."""
    return bytes([number << 3 | WIRE_BYTES]) + encode_varint(len(content)) + content


def encode_varint(value: int) -> bytes:
    """A number >= 0, seven bits a byte, the lowest first."""
    assert value >= 0
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def masked_crc(content: bytes) -> int:
    """CRC-32C, turned and shifted: sums are stored beside what they are of, and sums of sums are to differ."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = crc >> 8 ^ CRC32C_TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def make_crc_table() -> tuple[int, ...]:
    """What each value of a byte does to the sum."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (CRC32C_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return tuple(table)


CRC32C_TABLE = make_crc_table()
