"""The wire format of Robometer's and RynnValue's clients: a form of .npy files, and JSON that names them.

Their server hands what arrives to NumPy's loader. Here the header of a file is compared with the one form that it may
have, and its bytes are pixels or refused. Source: robometer/evals/eval_server.py, what it takes and what it answers.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from embodied_rm.serve.config import Limits
from embodied_rm.serve.films import Films, judged
from embodied_rm.serve.protocol import header_of, told, unfit
from embodied_rm.serve.refusal import RefusalError, Why
from embodied_rm.serve.service import RewardService
from embodied_rm.serve.sessions import Columns

PARTS = 512
"""Of a form."""
BOUNDARY = re.compile(r"""boundary=("?)([\w'()+,./:=? -]{1,70})\1(;|$)""")
NAME = re.compile(rb'^content-disposition: *form-data;.*?\bname="([^"\r\n]{1,200})"', re.IGNORECASE | re.MULTILINE)
MAGIC = b"\x93NUMPY"
HEADER = re.compile(
    rb"\{'descr': '\|u1', 'fortran_order': False, 'shape': \((\d{1,9}), (\d{1,9}), (\d{1,9}), 3\), \} *\n"
)
"""Of films of bytes [T, H, W, 3], as NumPy writes it."""
SAMPLE = re.compile(r"sample_(\d{1,4})")


class File(msgspec.Struct, rename={"key": "__numpy_file__"}):
    """Where the frames are."""

    key: str


class Trajectory(msgspec.Struct):
    """A film; what else their clients say of it is not needed."""

    frames: File
    task: str


class Sample(msgspec.Struct):
    """One of a form."""

    sample_type: str
    trajectory: Trajectory


async def evaluate(service: RewardService, content_type: str, body: bytes, view: str, expires: float) -> dict[str, Any]:
    """Judge the films of a form, each as a whole film of the camera `view`. Raises `RefusalError`."""
    parts = form_of(content_type, body)
    films = [film_of(sample, parts, view, service.limits) for sample in samples_of(parts)]
    said = await asyncio.gather(*(judged(service, film, expires) for film in films))
    return answer_of(said, service.about.tells_success)


def form_of(content_type: str, body: bytes) -> dict[str, memoryview]:
    """Name -> content of each part of a form."""
    found = BOUNDARY.search(content_type)
    if found is None:
        raise RefusalError(Why.WRONG_TYPE, "content-type must be multipart/form-data with a boundary")
    line, view = b"\r\n--" + found[2].encode(), memoryview(body)
    parts: dict[str, memoryview] = {}
    at = 0 if body.startswith(line[2:]) else -1
    if at < 0:
        raise RefusalError(Why.UNPARSABLE, "the body is no form: it does not begin with its boundary")
    at += len(line) - 2
    while body[at : at + 2] == b"\r\n":
        head = body.find(b"\r\n\r\n", at, at + 4096)
        end = body.find(line, head + 2)
        name = NAME.search(body[at + 2 : head])
        if head < 0 or end < 0 or name is None or len(parts) == PARTS:
            raise RefusalError(Why.UNPARSABLE, f"part {len(parts)} of the form cannot be read")
        parts[name[1].decode("utf-8", "replace")] = view[head + 4 : end]
        at = end + len(line)
    if body[at : at + 2] != b"--":
        raise RefusalError(Why.UNPARSABLE, "the form does not end")
    return parts


def samples_of(parts: Mapping[str, memoryview]) -> list[Sample]:
    """The samples, in their order."""
    numbers = sorted(int(found[1]) for name in parts if (found := SAMPLE.fullmatch(name)))
    if not numbers:
        raise RefusalError(Why.DOES_NOT_FIT, "the form has no sample_0")
    samples = [header_of(Sample, parts[f"sample_{number}"]) for number in numbers]
    for sample in samples:
        if sample.sample_type != "progress":
            raise unfit("sample_type", repr(sample.sample_type[:40]), "progress: this service compares no films")
    return samples


def film_of(sample: Sample, parts: Mapping[str, memoryview], view: str, limits: Limits) -> Films:
    """The film of a sample."""
    key = sample.trajectory.frames.key
    if key not in parts:
        raise unfit("frames", repr(key[:60]), "the name of a file in the form")
    frames = pixels_in(parts[key], key, limits)
    task = told([sample.trajectory.task], 1, limits)
    return Films(client="evaluate_batch_npy", instructions=task, names=(view,), frames=frames[None, :, None])


def pixels_in(content: memoryview, name: str, limits: Limits) -> np.ndarray:
    """uint8 [T, H, W, 3] of a .npy file."""
    if bytes(content[:6]) != MAGIC or bytes(content[6:7]) not in (b"\x01", b"\x02", b"\x03"):
        raise unfit(name[:60], "no .npy file", "one that NumPy wrote")
    wide = 2 if content[6] == 1 else 4
    start = 8 + wide
    end = start + int.from_bytes(content[8:start], "little")
    found = HEADER.fullmatch(bytes(content[start : min(end, start + 4096)]))
    if found is None:
        raise unfit(name[:60], bytes(content[start : start + 80]), "frames as uint8 [T, H, W, 3], in C order")
    length, height, width = (int(size) for size in found.groups())
    if not (0 < length <= limits.frames and 0 < height <= limits.side and 0 < width <= limits.side):
        raise unfit(
            name[:60], [length, height, width, 3], f"at most [{limits.frames}, {limits.side}, {limits.side}, 3]"
        )
    if len(content) - end != length * height * width * 3:
        raise unfit(name[:60], f"{len(content) - end} bytes", f"{length * height * width * 3}")
    return np.frombuffer(content[end:], np.uint8).reshape(length, height, width, 3)


def answer_of(said: list[Columns], tells_success: bool) -> dict[str, Any]:
    """What their server answers: a list of numbers for each film."""
    progress = [columns["value"][0].tolist() for columns in said]
    success = [columns["success"][0].clip(0, 1).tolist() for columns in said]
    return {
        "outputs_preference": None,
        "outputs_progress": {"progress_pred": progress},
        "outputs_success": {"success_probs": success} if tells_success else None,
    }
