"""Wire format of Robometer's and RynnValue's clients: a multipart form of .npy files, and JSON that names them.

Their server passes uploaded files to `np.load`. Here the .npy header must match one fixed pattern, and the rest is read
as pixels. Source: robometer/evals/eval_server.py.
"""

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from embodied_rm.serve.open_inference import ClipBatch, score_clips
from embodied_rm.serve.protocol import parse_header, validate_instructions
from embodied_rm.serve.request_errors import ErrorCode, RequestError, validation_error
from embodied_rm.serve.service import RewardService
from embodied_rm.serve.service_config import ServeLimits
from embodied_rm.serve.sessions import OutputColumns

MAX_FORM_PARTS = 512  # parts per form
MAX_CONCURRENT_CLIPS = 32  # clips of one form that are scored at a time
BOUNDARY_PATTERN = re.compile(r"""boundary=("?)([\w'()+,./:=? -]{1,70})\1(;|$)""")
PART_NAME_PATTERN = re.compile(
    rb'^content-disposition: *form-data;.*?\bname="([^"\r\n]{1,200})"', re.IGNORECASE | re.MULTILINE
)
NPY_MAGIC = b"\x93NUMPY"
NPY_HEADER_PATTERN = re.compile(
    rb"\{'descr': '\|u1', 'fortran_order': False, 'shape': \((\d{1,9}), (\d{1,9}), (\d{1,9}), 3\), \} *\n"
)
"""Header of clips uint8 [T, H, W, 3], as NumPy writes it."""
SAMPLE_NAME_PATTERN = re.compile(r"sample_(\d{1,4})")


class NpyFileRef(msgspec.Struct, rename={"key": "__numpy_file__"}):
    """Name of the form part with the frames."""

    key: str


class TrajectoryPayload(msgspec.Struct):
    """A clip. Other fields that these clients send are ignored."""

    frames: NpyFileRef
    task: str


class SamplePayload(msgspec.Struct):
    """One sample of a form."""

    sample_type: str
    trajectory: TrajectoryPayload


async def evaluate_form(
    service: RewardService, content_type: str, body: bytes, view: str, deadline: float
) -> dict[str, Any]:
    """Score the clips of a form, each as camera `view`. Raises `RequestError`."""
    parts = parse_form(content_type, body)
    clips = [parse_clip(sample, parts, view, service.limits) for sample in parse_samples(parts)]
    outputs = await score_each(service, clips, deadline)
    return build_response(outputs, service.metadata.predicts_success)


async def score_each(service: RewardService, clips: Sequence[ClipBatch], deadline: float) -> list[OutputColumns]:
    """Score clips, some at a time: the queue has room for more than one form. An error ends the others."""
    turns = asyncio.Semaphore(min(MAX_CONCURRENT_CLIPS, service.limits.max_client_queue))

    async def score_one(clip: ClipBatch) -> OutputColumns:
        async with turns:
            return await score_clips(service, clip, deadline)

    tasks = [asyncio.create_task(score_one(clip)) for clip in clips]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def parse_form(content_type: str, body: bytes) -> dict[str, memoryview]:
    """Return part name -> content."""
    match = BOUNDARY_PATTERN.search(content_type)
    if match is None:
        raise RequestError(ErrorCode.UNSUPPORTED_MEDIA_TYPE, "content-type must be multipart/form-data with a boundary")
    delimiter, view = b"\r\n--" + match[2].encode(), memoryview(body)
    parts: dict[str, memoryview] = {}
    if not body.startswith(delimiter[2:]):
        raise RequestError(ErrorCode.BAD_REQUEST, "the form does not start with its boundary")
    offset = len(delimiter) - 2
    while body[offset : offset + 2] == b"\r\n":
        head_end = body.find(b"\r\n\r\n", offset, offset + 4096)
        part_end = body.find(delimiter, head_end + 2)
        name_match = PART_NAME_PATTERN.search(body[offset + 2 : head_end])
        if head_end < 0 or part_end < 0 or name_match is None or len(parts) == MAX_FORM_PARTS:
            raise RequestError(ErrorCode.BAD_REQUEST, f"part {len(parts)} of the form cannot be read")
        parts[name_match[1].decode("utf-8", "replace")] = view[head_end + 4 : part_end]
        offset = part_end + len(delimiter)
    if body[offset : offset + 2] != b"--":
        raise RequestError(ErrorCode.BAD_REQUEST, "the form does not end")
    return parts


def parse_samples(parts: Mapping[str, memoryview]) -> list[SamplePayload]:
    """Return the samples, in order."""
    indices = sorted(int(match[1]) for name in parts if (match := SAMPLE_NAME_PATTERN.fullmatch(name)))
    if not indices:
        raise RequestError(ErrorCode.VALIDATION_ERROR, "the form has no sample_0")
    samples = [parse_header(SamplePayload, parts[f"sample_{index}"]) for index in indices]
    for sample in samples:
        if sample.sample_type != "progress":
            expected = "progress: this service does not compare clips"
            raise validation_error("sample_type", repr(sample.sample_type[:40]), expected)
    return samples


def parse_clip(sample: SamplePayload, parts: Mapping[str, memoryview], view: str, limits: ServeLimits) -> ClipBatch:
    """Return the clip of a sample."""
    key = sample.trajectory.frames.key
    if key not in parts:
        raise validation_error("frames", repr(key[:60]), "the name of a file in the form")
    frames = parse_npy_frames(parts[key], key, limits)[None, :, None]
    instructions = validate_instructions([sample.trajectory.task], 1, limits)
    return ClipBatch(client_id="evaluate_batch_npy", instructions=instructions, view_names=(view,), frames=frames)


def parse_npy_frames(content: memoryview, name: str, limits: ServeLimits) -> np.ndarray:
    """Return the frames of a .npy file, uint8 [T, H, W, 3]."""
    if bytes(content[:6]) != NPY_MAGIC or bytes(content[6:7]) not in (b"\x01", b"\x02", b"\x03"):
        raise validation_error(name[:60], "no .npy file", "a file written by NumPy")
    header_start = 8 + (2 if content[6] == 1 else 4)  # after the field of the header's length
    header_end = header_start + int.from_bytes(content[8:header_start], "little")
    match = NPY_HEADER_PATTERN.fullmatch(bytes(content[header_start : min(header_end, header_start + 4096)]))
    if match is None:
        header = bytes(content[header_start : header_start + 80])
        raise validation_error(name[:60], header, "frames as uint8 [T, H, W, 3], in C order")
    shape = [*map(int, match.groups()), 3]
    max_shape = [limits.max_frames, limits.max_image_side, limits.max_image_side, 3]
    if not all(0 < size <= max_size for size, max_size in zip(shape, max_shape, strict=True)):
        raise validation_error(name[:60], shape, f"at most {max_shape}")
    if len(content) - header_end != math.prod(shape):
        raise validation_error(name[:60], f"{len(content) - header_end} bytes", f"{math.prod(shape)}")
    return np.frombuffer(content[header_end:], np.uint8).reshape(shape)


def build_response(outputs: list[OutputColumns], predicts_success: bool) -> dict[str, Any]:
    """Build the JSON that Robometer's server returns."""
    progress = [columns["progress"][0].tolist() for columns in outputs]
    success = [columns["success"][0].clip(0, 1).tolist() for columns in outputs]
    return {
        "outputs_preference": None,
        "outputs_progress": {"progress_pred": progress},
        "outputs_success": {"success_probs": success} if predicts_success else None,
    }
