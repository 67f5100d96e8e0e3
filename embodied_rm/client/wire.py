"""Messages of the reward service: a JSON header, followed by binary data, and the predictions in them.

Source: the binary tensor data extension of the Open Inference Protocol. An HTTP header gives the length of the JSON.
The tensors follow, little-endian, in the order of the JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional, Union

import numpy as np
import numpy.typing as npt

HEADER_LENGTH_HEADER = "Inference-Header-Content-Length"
"""HTTP header with the length of the JSON, in bytes."""
TIMEOUT_HEADER = "X-Timeout-Ms"
"""HTTP header with the milliseconds within which a response is of use."""
BINARY_CONTENT_TYPE = "application/octet-stream"
LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")
"""Names of this machine, to which a key may be sent without TLS."""
NUMPY_DTYPES = {"FP32": "<f4", "INT64": "<i8", "INT32": "<i4", "UINT8": "|u1", "BOOL": "|b1"}
"""Datatype of the protocol -> NumPy dtype."""
DATATYPE_NAMES = {kind: name for name, kind in NUMPY_DTYPES.items()}
Array = npt.NDArray[Any]
Frames = Mapping[str, Array]
"""View -> uint8 [N, H, W, 3]."""
BytesLike = Union[bytes, bytearray, memoryview]
Message = tuple[bytes, list[BytesLike]]
"""JSON, and the binary data that follow it."""


class RewardPrediction(NamedTuple):
    """Predictions for one frame of each of N environments."""

    progress: Array
    """float32 [N] in [0, 1]. Where a frame is not `valid`, the value of the previous frame."""
    valid: Array
    """bool [N]: whether the model could score the frame."""
    subtask: Array
    """int64 [N]: index of the current subtask."""
    success: Array
    """float32 [N]: probability of success; NaN if the model does not predict it."""
    uncertainty: Array
    """float32 [N]: expected absolute error of the progress."""
    ood: Array
    """float32 [N]: out-of-distribution score, above 1 beyond the training data; NaN if unknown."""
    state: Optional[bytes]
    """Serialized state of the episodes, if requested."""


def encode_response(
    columns: Mapping[str, Array], metadata: Mapping[str, Any], trailing_bytes: BytesLike = b""
) -> Message:
    """Encode a response: named arrays, `metadata` for the JSON, and `trailing_bytes` after the last array."""
    outputs, blobs = [], []
    for name, column in columns.items():
        blob = np.ascontiguousarray(column).tobytes()
        dtype = DATATYPE_NAMES[column.dtype.newbyteorder("<").str if column.dtype.itemsize > 1 else column.dtype.str]
        parameters = {"binary_data_size": len(blob)}
        outputs.append({"name": name, "datatype": dtype, "shape": list(column.shape), "parameters": parameters})
        blobs.append(blob)
    return json.dumps({**metadata, "outputs": outputs}).encode(), [*blobs, trailing_bytes]


def decode_response(body: bytes, header_length: int) -> tuple[dict[str, Any], dict[str, Array], memoryview]:
    """Decode a response into metadata, arrays and trailing bytes. Raises `ValueError` for an invalid one."""
    if not 0 < header_length <= len(body):
        raise ValueError(f"{HEADER_LENGTH_HEADER} is {header_length} of {len(body)} bytes")
    metadata = json.loads(body[:header_length])
    outputs, offset = metadata.pop("outputs"), header_length
    columns = {}
    for output in outputs:
        dtype, shape = np.dtype(NUMPY_DTYPES[output["datatype"]]), output["shape"]
        num_bytes = output["parameters"]["binary_data_size"]
        num_values = int(np.prod(shape, dtype=np.int64))
        if num_bytes != num_values * dtype.itemsize or offset + num_bytes > len(body):
            raise ValueError(f"{output['name']} has shape {shape} and {num_bytes} bytes")
        columns[output["name"]] = np.frombuffer(body, dtype, num_values, offset).reshape(shape)
        offset += num_bytes
    return metadata, columns, memoryview(body)[offset:]


def encode_request(header: Mapping[str, Any], blobs: Sequence[BytesLike]) -> Message:
    """Encode a request."""
    return json.dumps(header, separators=(",", ":")).encode(), list(blobs)
