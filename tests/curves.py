"""Read the logs of a run: TensorBoard files with TensorBoard's reader, W&B runs from their transaction log."""

from __future__ import annotations

import struct
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto.wandb_internal_pb2 import Record

Curve = list[tuple[int, float]]
BLOCK_BYTES, HEADER_BYTES = 32768, 7
"""Sizes of LevelDB's log format, which `.wandb` files use."""
FULL, FIRST, LAST = 1, 2, 4
"""Types of the fragments of a record in this format."""


def read_scalars(folder: Path) -> dict[str, Curve]:
    """Return tag -> (step, value) of every point that TensorBoard shows."""
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    accumulator.Reload()
    return {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]
    }


def read_wandb_records(path: Path) -> list[Record]:
    """Return the records of a `.wandb` file."""
    content, offset, records, data = path.read_bytes(), HEADER_BYTES, [], b""
    while offset + HEADER_BYTES <= len(content):
        block_rest = BLOCK_BYTES - offset % BLOCK_BYTES
        if block_rest < HEADER_BYTES:
            offset += block_rest
            continue
        length, fragment_type = struct.unpack_from("<HB", content, offset + 4)
        fragment = content[offset + HEADER_BYTES : offset + HEADER_BYTES + length]
        data = fragment if fragment_type in (FULL, FIRST) else data + fragment
        if fragment_type in (FULL, LAST):
            record = Record()
            record.ParseFromString(data)
            records.append(record)
        offset += HEADER_BYTES + length
    return records
