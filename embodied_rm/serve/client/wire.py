"""Messages of the reward service: a JSON header, and the numbers it speaks of behind it, as raw bytes.

Source: the binary tensor data extension of the Open Inference Protocol: an HTTP header tells how many bytes of the body
are JSON; the bytes of each tensor follow, little-endian, in the order in which the JSON lists them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Union

import numpy as np
import numpy.typing as npt

LENGTH = "Inference-Header-Content-Length"
"""The HTTP header with the bytes of JSON."""
TIMEOUT = "X-Timeout-Ms"
"""The HTTP header with the milliseconds in which an answer is still of use."""
BINARY = "application/octet-stream"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
"""Names of this machine, to which a key may be sent in the clear."""
DATATYPES = {"FP32": "<f4", "INT64": "<i8", "INT32": "<i4", "UINT8": "|u1", "BOOL": "|b1"}
"""Names of the protocol and numpy's."""
NAMES = {kind: name for name, kind in DATATYPES.items()}
Array = npt.NDArray[Any]
Bytes = Union[bytes, bytearray, memoryview]
Message = tuple[bytes, list[Bytes]]
"""The JSON, and what follows it."""


def answer_of(columns: Mapping[str, Array], told: Mapping[str, Any], tail: Bytes = b"") -> Message:
    """An answer of named arrays; `told`: other things that the JSON says; `tail`: bytes behind the last array."""
    outputs, blobs = [], []
    for name, column in columns.items():
        blob = np.ascontiguousarray(column).tobytes()
        kind = NAMES[column.dtype.newbyteorder("<").str if column.dtype.itemsize > 1 else column.dtype.str]
        size = {"binary_data_size": len(blob)}
        outputs.append({"name": name, "datatype": kind, "shape": list(column.shape), "parameters": size})
        blobs.append(blob)
    return json.dumps({**told, "outputs": outputs}).encode(), [*blobs, tail]


def read_answer(body: bytes, length: int) -> tuple[dict[str, Any], dict[str, Array], memoryview]:
    """What `answer_of` made: what is told, the arrays, the bytes behind them. Raises `ValueError` for what is none."""
    if not 0 < length <= len(body):
        raise ValueError(f"{LENGTH} is {length} of {len(body)} bytes")
    told = json.loads(body[:length])
    outputs, at = told.pop("outputs"), length
    columns = {}
    for output in outputs:
        kind, shape = np.dtype(DATATYPES[output["datatype"]]), output["shape"]
        size = output["parameters"]["binary_data_size"]
        count = int(np.prod(shape, dtype=np.int64))
        if size != count * kind.itemsize or at + size > len(body):
            raise ValueError(f"{output['name']} has shape {shape} and {size} bytes")
        columns[output["name"]] = np.frombuffer(body, kind, count, at).reshape(shape)
        at += size
    return told, columns, memoryview(body)[at:]


def request_of(header: Mapping[str, Any], blobs: Sequence[Bytes]) -> Message:
    """A request: its JSON, and the bytes that it speaks of."""
    return json.dumps(header, separators=(",", ":")).encode(), list(blobs)
