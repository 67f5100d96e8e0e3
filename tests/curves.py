"""What other people's tools read of a run: TensorBoard by its own reader, W&B from its transaction log."""

from __future__ import annotations

import struct
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto.wandb_internal_pb2 import Record

Curve = list[tuple[int, float]]
BLOCK, HEADER, FIRST = 32768, 7, 2
"""Of LevelDB's log format, which a `.wandb` file is in: bytes of a block, of a piece's header, and a piece's kind."""


def drawn(folder: Path) -> dict[str, Curve]:
    """Tag -> (step, value) of every point that TensorBoard draws."""
    read = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    read.Reload()
    return {tag: [(point.step, point.value) for point in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


def told(path: Path) -> list[Record]:
    """The records of a `.wandb` file."""
    content, at, records, parts = path.read_bytes(), HEADER, [], b""
    while at + HEADER <= len(content):
        if BLOCK - at % BLOCK < HEADER:
            at += BLOCK - at % BLOCK
            continue
        length, kind = struct.unpack_from("<HB", content, at + 4)
        piece = content[at + HEADER : at + HEADER + length]
        parts = piece if kind <= FIRST else parts + piece
        if kind in (1, 4):  # whole, or the last piece
            record = Record()
            record.ParseFromString(parts)
            records.append(record)
        at += HEADER + length
    return records
