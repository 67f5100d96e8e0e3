"""Films by the Open Inference Protocol, version 2: for clients that know nothing of us.

Source: kserve/open-inference-protocol, specification/protocol/inference_rest.md, and its binary tensor data extension.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from embodied_rm.serve.client.wire import NAMES, Message
from embodied_rm.serve.config import Limits
from embodied_rm.serve.films import Films, judged
from embodied_rm.serve.protocol import header_of, told, unfit, view_names
from embodied_rm.serve.refusal import RefusalError, Why
from embodied_rm.serve.service import RewardService
from embodied_rm.serve.sessions import KINDS, Columns

SIZE, BINARY_OUTPUT = "binary_data_size", "binary_data_output"
BYTES, PIXELS = "BYTES", "UINT8"
PREFIX = 4
"""Bytes before each text of a binary tensor of texts, which say how long it is."""
INPUTS = {"frames": (PIXELS, [-1, -1, -1, -1, -1, 3]), "instruction": (BYTES, [-1]), "views": (BYTES, [-1])}
"""Name -> datatype and shape: films [N, T, V, H, W, 3], what is asked for in each [N], the names of the views [V]."""
Parameters = dict[str, str | int | float | bool]
Inputs = dict[str, tuple["Tensor", memoryview]]


class Tensor(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An input."""

    name: str
    shape: list[int]
    datatype: str
    parameters: Parameters = {}
    data: list[Any] | None = None


class Wanted(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An output."""

    name: str
    parameters: Parameters = {}


class InferHeader(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A request."""

    inputs: list[Tensor]
    id: str = ""
    parameters: Parameters = {}
    outputs: list[Wanted] | None = None


def described() -> dict[str, Any]:
    """Inputs and outputs, as metadata tells them."""
    outputs = [{"name": name, "datatype": NAMES[kind], "shape": [-1, -1]} for name, kind in KINDS.items()]
    inputs = [{"name": name, "datatype": kind, "shape": shape} for name, (kind, shape) in INPUTS.items()]
    return {"inputs": inputs, "outputs": outputs}


async def infer(service: RewardService, text: bytes | memoryview, blob: memoryview, expires: float) -> Message:
    """Judge the films of a request. Raises `RefusalError`."""
    header = header_of(InferHeader, text)
    films, wanted = films_of(inputs_of(header, blob), service.limits), outputs_of(header.outputs)
    columns = await judged(service, films, expires)
    about = {"model_name": service.about.name, "model_version": service.about.version, "id": header.id}
    return answer_of(about, {name: columns[name] for name in wanted}, bool(header.parameters.get(BINARY_OUTPUT)))


def outputs_of(wanted: Sequence[Wanted] | None) -> list[str]:
    """The names that are asked for; all, where none are."""
    names = [one.name for one in wanted] if wanted else list(KINDS)
    for name in names:
        if name not in KINDS:
            raise unfit("outputs", repr(name[:40]), f"of {', '.join(KINDS)}")
    return names


def inputs_of(header: InferHeader, blob: memoryview) -> Inputs:
    """Each input, and its bytes where it has some behind the JSON."""
    inputs: Inputs = {}
    for tensor in header.inputs:
        size = tensor.parameters.get(SIZE, 0)
        if not isinstance(size, int) or not 0 <= size <= len(blob) or bool(size) == (tensor.data is not None):
            raise unfit(tensor.name[:40], "", f"either data, or parameters.{SIZE} and so many bytes behind the JSON")
        if tensor.name in inputs:
            raise unfit("inputs", f"{tensor.name[:40]!r} twice", "each once")
        inputs[tensor.name], blob = (tensor, blob[:size]), blob[size:]
    if len(blob):
        raise unfit("inputs", f"{len(blob)} bytes more than they have", "no byte that belongs to none of them")
    return inputs


def films_of(inputs: Inputs, limits: Limits) -> Films:
    """The films of a request, which must be exactly what they say."""
    if set(inputs) != set(INPUTS):
        raise unfit("inputs", ", ".join(inputs)[:80] or "none", ", ".join(INPUTS))
    for name, (tensor, _) in inputs.items():
        if tensor.datatype != INPUTS[name][0]:
            raise unfit(f"{name}.datatype", repr(tensor.datatype[:20]), INPUTS[name][0])
    names = view_names(texts_of(*inputs["views"]), limits)
    frames = frames_of(*inputs["frames"], len(names), limits)
    instructions = told(texts_of(*inputs["instruction"]), len(frames), limits)
    return Films(client="infer", instructions=instructions, names=names, frames=frames)


def frames_of(tensor: Tensor, blob: memoryview, views: int, limits: Limits) -> np.ndarray:
    """uint8 [N, T, V, H, W, 3]."""
    shape = tensor.shape
    most = (limits.rows, limits.frames, views, limits.side, limits.side, 3)
    least = (1, 1, views, 1, 1, 3)
    if len(shape) != 6 or not all(low <= size <= high for low, size, high in zip(least, shape, most, strict=True)):
        raise unfit("frames.shape", shape[:8], f"[N, T, {views}, H, W, 3], at most {list(most)}")
    count = int(np.prod(shape, dtype=np.int64))
    if tensor.data is not None:
        return numbers_of(tensor.data, count).reshape(shape)
    if len(blob) != count:
        raise unfit("frames", f"{len(blob)} bytes", f"{count}, for uint8 {shape}")
    return np.frombuffer(blob, np.uint8).reshape(shape)


def numbers_of(data: list[Any], count: int) -> np.ndarray:
    """Pixels that are written as JSON, flat or nested."""
    flat: list[Any] = data
    while flat and isinstance(flat[0], list):
        if not all(isinstance(part, list) for part in flat):
            raise unfit("frames.data", "numbers beside lists", "lists of one depth")
        flat = [value for part in flat for value in part]
    if len(flat) != count or not all(type(value) is int and 0 <= value < 256 for value in flat):
        raise unfit("frames.data", f"{len(flat)} values", f"{count} whole numbers from 0 to 255")
    return np.array(flat, np.uint8)


def texts_of(tensor: Tensor, blob: memoryview) -> list[str]:
    """A tensor of texts."""
    texts = tensor.data
    if texts is None:
        try:
            texts = [part.decode() for part in prefixed(blob)]
        except UnicodeDecodeError:
            raise unfit(tensor.name, "bytes", "text in UTF-8") from None
    if tensor.shape != [len(texts)] or not all(isinstance(text, str) for text in texts):
        raise unfit(tensor.name, f"{len(texts)} values", f"texts of shape {tensor.shape[:4]}")
    return texts


def prefixed(blob: memoryview) -> list[bytes]:
    """Texts, each behind its length."""
    parts, at = [], 0
    while at < len(blob):
        size = int.from_bytes(blob[at : at + PREFIX], "little")
        at += PREFIX
        if at + size > len(blob):
            raise RefusalError(Why.DOES_NOT_FIT, "a text is longer than the bytes that there are")
        parts.append(bytes(blob[at : at + size]))
        at += size
    return parts


def answer_of(about: dict[str, Any], columns: Columns, binary: bool) -> Message:
    """The answer, its numbers behind the JSON or in it."""
    outputs: list[dict[str, Any]] = []
    blobs: list[bytes | bytearray | memoryview] = []
    for name, column in columns.items():
        output: dict[str, Any] = {"name": name, "datatype": NAMES[KINDS[name]], "shape": list(column.shape)}
        if binary:
            blobs.append(column.tobytes())
            output["parameters"] = {SIZE: len(blobs[-1])}
        else:
            output["data"] = column.ravel().tolist()
        outputs.append(output)
    return json.dumps({**about, "outputs": outputs}).encode(), blobs
