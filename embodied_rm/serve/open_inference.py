"""Scoring of whole clips without sessions, and clips by the Open Inference Protocol, version 2.

Source: kserve/open-inference-protocol, specification/protocol/inference_rest.md, and its binary tensor data extension.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from embodied_rm.client.wire import DATATYPE_NAMES, Message, encode_response
from embodied_rm.serve.protocol import parse_header, validate_instructions, validate_view_names
from embodied_rm.serve.request_errors import ErrorCode, RequestError, validation_error
from embodied_rm.serve.request_queue import RESET, STEP, WorkItem
from embodied_rm.serve.service import RewardService
from embodied_rm.serve.service_config import ServeLimits
from embodied_rm.serve.sessions import OUTPUT_DTYPES, OutputColumns
from embodied_rm.serve.state_store import StateRow
from embodied_rm.types import Views

BINARY_SIZE_KEY, BINARY_OUTPUT_KEY = "binary_data_size", "binary_data_output"
BYTES_DATATYPE, UINT8_DATATYPE = "BYTES", "UINT8"
LENGTH_PREFIX_BYTES = 4  # size of the length that precedes each string in a binary BYTES tensor
INPUT_SPECS = {
    "frames": (UINT8_DATATYPE, [-1, -1, -1, -1, -1, 3]),
    "instruction": (BYTES_DATATYPE, [-1]),
    "views": (BYTES_DATATYPE, [-1]),
}
"""Input -> datatype and shape: clips [N, T, V, H, W, 3], one instruction per clip [N], view names [V]."""
Parameters = dict[str, str | int | float | bool]
Inputs = dict[str, tuple["InferInputTensor", memoryview]]


class InferInputTensor(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An input tensor of a request."""

    name: str
    shape: list[int]
    datatype: str
    parameters: Parameters = {}
    data: list[Any] | None = None


class InferRequestedOutput(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An output that a request selects."""

    name: str
    parameters: Parameters = {}


class InferHeader(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The JSON of a request."""

    inputs: list[InferInputTensor]
    id: str = ""
    parameters: Parameters = {}
    outputs: list[InferRequestedOutput] | None = None


def describe_tensors() -> dict[str, Any]:
    """Return the metadata of inputs and outputs."""
    inputs = [describe_tensor(name, datatype, shape) for name, (datatype, shape) in INPUT_SPECS.items()]
    outputs = [describe_tensor(name, DATATYPE_NAMES[dtype], (-1, -1)) for name, dtype in OUTPUT_DTYPES.items()]
    return {"inputs": inputs, "outputs": outputs}


def describe_tensor(name: str, datatype: str, shape: Sequence[int]) -> dict[str, Any]:
    """Return the metadata of a tensor by the protocol."""
    return {"name": name, "datatype": datatype, "shape": list(shape)}


@dataclass(frozen=True, kw_only=True)
class ClipBatch:
    """N clips of equal length and size."""

    client_id: str  # for round-robin scheduling
    instructions: Sequence[str]
    view_names: tuple[str, ...]
    frames: npt.NDArray[np.uint8]  # [N, T, V, H, W, 3]

    def __len__(self) -> int:
        return len(self.instructions)


async def score_clips(service: RewardService, clips: ClipBatch, deadline: float) -> OutputColumns:
    """Score every frame from its past alone. Returns arrays [N, T]. Raises `RequestError`."""
    outputs, state_rows = list[OutputColumns](), list[StateRow]()
    for t in range(clips.frames.shape[1]):
        item = WorkItem(
            client_id=clips.client_id,
            kind=STEP if t else RESET,
            num_rows=len(clips),
            views=Views(names=clips.view_names, frames=clips.frames[:, t]),
            instructions=clips.instructions,
            state_rows=state_rows,
            deadline=deadline,
        )
        result = await service.engine.submit(item)
        state_rows = [(result.state_batch.state, result.first_row + row) for row in range(len(clips))]
        assert result.output is not None
        outputs.append(service.to_output_columns(result.output))
    return {name: np.stack([columns[name] for columns in outputs], axis=1) for name in outputs[0]}


async def infer(
    service: RewardService, header_json: bytes | memoryview, payload: memoryview, deadline: float
) -> Message:
    """Score the clips of a request. Raises `RequestError`."""
    header = parse_header(InferHeader, header_json)
    clips = parse_clips(parse_inputs(header, payload), service.limits)
    output_names = parse_outputs([output.name for output in header.outputs or ()])
    columns = await score_clips(service, clips, deadline)
    columns = {name: columns[name] for name in output_names}
    metadata = {**service.model_info, "id": header.id}
    if header.parameters.get(BINARY_OUTPUT_KEY):
        return encode_response(columns, metadata)
    outputs = [
        {**describe_tensor(name, DATATYPE_NAMES[OUTPUT_DTYPES[name]], column.shape), "data": column.ravel().tolist()}
        for name, column in columns.items()
    ]
    return json.dumps({**metadata, "outputs": outputs}).encode(), []


def parse_outputs(names: Sequence[str]) -> list[str]:
    """Return the names of the requested outputs; all of them if the request selects none."""
    for name in names:
        if name not in OUTPUT_DTYPES:
            raise validation_error("outputs", repr(name[:40]), f"one of {', '.join(OUTPUT_DTYPES)}")
    return list(names or OUTPUT_DTYPES)


def parse_inputs(header: InferHeader, payload: memoryview) -> Inputs:
    """Return each input with its bytes after the JSON, if it has any."""
    inputs: Inputs = {}
    for tensor in header.inputs:
        num_bytes = tensor.parameters.get(BINARY_SIZE_KEY, 0)
        if (
            not isinstance(num_bytes, int)
            or not 0 <= num_bytes <= len(payload)
            or bool(num_bytes) == (tensor.data is not None)
        ):
            expected = f"either data, or parameters.{BINARY_SIZE_KEY} and as many bytes after the JSON"
            raise validation_error(tensor.name[:40], "", expected)
        if tensor.name in inputs:
            raise validation_error("inputs", f"{tensor.name[:40]!r} twice", "each once")
        inputs[tensor.name], payload = (tensor, payload[:num_bytes]), payload[num_bytes:]
    if len(payload):
        raise validation_error("inputs", f"{len(payload)} extra bytes", "no bytes beyond those of the inputs")
    return inputs


def parse_clips(inputs: Inputs, limits: ServeLimits) -> ClipBatch:
    """Build the clips from the inputs, after validation."""
    if set(inputs) != set(INPUT_SPECS):
        raise validation_error("inputs", ", ".join(inputs)[:80] or "none", ", ".join(INPUT_SPECS))
    for name, (tensor, _) in inputs.items():
        if tensor.datatype != INPUT_SPECS[name][0]:
            raise validation_error(f"{name}.datatype", repr(tensor.datatype[:20]), INPUT_SPECS[name][0])
    names = validate_view_names(parse_texts(*inputs["views"]), limits)
    frames = parse_frames(*inputs["frames"], len(names), limits)
    instructions = validate_instructions(parse_texts(*inputs["instruction"]), len(frames), limits)
    return ClipBatch(client_id="infer", instructions=instructions, view_names=names, frames=frames)


def parse_frames(tensor: InferInputTensor, payload: memoryview, num_views: int, limits: ServeLimits) -> np.ndarray:
    """Return the frames, uint8 [N, T, V, H, W, 3]."""
    shape = tensor.shape
    max_side = limits.max_image_side
    max_shape = [limits.max_envs_per_request, limits.max_frames, num_views, max_side, max_side, 3]
    bounds = zip((1, 1, num_views, 1, 1, 3), shape, max_shape, strict=False)
    if len(shape) != 6 or not all(low <= size <= high for low, size, high in bounds):
        raise validation_error("frames.shape", shape[:8], f"[N, T, {num_views}, H, W, 3], at most {max_shape}")
    num_values = math.prod(shape)
    if tensor.data is not None:
        return flatten_pixels(tensor.data, num_values).reshape(shape)
    if len(payload) != num_values:
        raise validation_error("frames", f"{len(payload)} bytes", f"{num_values}, for uint8 {shape}")
    return np.frombuffer(payload, np.uint8).reshape(shape)


def flatten_pixels(data: list[Any], num_values: int) -> np.ndarray:
    """Return pixels from a JSON list, flat or nested."""
    flat: list[Any] = data
    while flat and isinstance(flat[0], list):
        if not all(isinstance(row, list) for row in flat):
            raise validation_error("frames.data", "numbers next to lists", "lists of equal depth")
        flat = [value for row in flat for value in row]
    if len(flat) != num_values or not all(type(value) is int and 0 <= value < 256 for value in flat):
        raise validation_error("frames.data", f"{len(flat)} values", f"{num_values} integers from 0 to 255")
    return np.array(flat, np.uint8)


def parse_texts(tensor: InferInputTensor, payload: memoryview) -> list[str]:
    """Return the strings of a BYTES tensor."""
    texts = tensor.data
    if texts is None:
        try:
            texts = [encoded.decode() for encoded in split_length_prefixed(payload)]
        except UnicodeDecodeError:
            raise validation_error(tensor.name, "bytes", "text in UTF-8") from None
    if tensor.shape != [len(texts)] or not all(isinstance(text, str) for text in texts):
        raise validation_error(tensor.name, f"{len(texts)} values", f"strings of shape {tensor.shape[:4]}")
    return texts


def split_length_prefixed(payload: memoryview) -> list[bytes]:
    """Split a binary BYTES tensor into its strings."""
    chunks = []
    while len(payload):
        end = LENGTH_PREFIX_BYTES + int.from_bytes(payload[:LENGTH_PREFIX_BYTES], "little")
        if end > len(payload):
            raise RequestError(ErrorCode.VALIDATION_ERROR, "a string is longer than the remaining bytes")
        chunks.append(bytes(payload[LENGTH_PREFIX_BYTES:end]))
        payload = payload[end:]
    return chunks
