"""Requests as they come, and what is left of them when everything in them has been looked at."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from embodied_rm.serve.request_errors import ErrorCode, RequestError
from embodied_rm.serve.service_config import ServeLimits
from embodied_rm.types import Views

CLIENT_ID_PATTERN = re.compile(r"[\w.:-]{1,128}")
"""What a run, a client's own name for itself, may be called."""
VIEW_NAME_PATTERN = re.compile(r"[\w.:/-]{1,64}")
CONTROL_CHAR_PATTERN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
"""Letters that no instruction has."""
MAX_SAFE_INTEGER = 1 << 53
"""Of a number that every JSON reader can hold."""

HeaderT = TypeVar("HeaderT")


class EpisodesHeader(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What all requests about sessions say: whose, and of which episodes."""

    client_id: str
    env_ids: list[int]
    episode_ids: list[int]


class FramesHeader(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How the frames behind the JSON are written."""

    shape: list[int]
    """[N, V, H, W, 3] of raw pixels, [N, V] of images."""
    view_major: bool = False
    """Whether the raw pixels of all environments follow each other view after view: [V, N, H, W, 3] in memory."""
    image_bytes: list[int] | None = None
    """Bytes of each JPEG or PNG, view after view, environment after environment; None: the pixels are raw."""


class FrameRequestHeader(EpisodesHeader, kw_only=True):
    """What requests say that show a frame of each."""

    views: list[str]
    frames: FramesHeader
    return_state: bool = False
    """Whether the memory is sent along, see `RestoreHeader`."""


class ResetHeader(FrameRequestHeader, kw_only=True):
    """Episodes begin: their first frames."""

    instructions: list[str]


class StepHeader(FrameRequestHeader, kw_only=True):
    """Episodes go on: one more frame each, the `step`-th since the first."""

    steps: list[int]


class EndHeader(EpisodesHeader, kw_only=True):
    """Episodes are over, or of no more interest."""


class RestoreHeader(EpisodesHeader, kw_only=True):
    """Episodes that another service, or this one before it died, remembered so far: their memory is sent back."""

    steps: list[int]
    state_rows: list[int]
    """Which of the episodes that the memory is of each of them is."""
    num_state_rows: int
    """How many it is of."""
    state_bytes: int
    """Bytes of it, as they were sent along."""


class FrameFingerprint:
    """What a row shows, by a number for it: equal where it is shown again, as it was sent.

    The number is worked out when somebody asks, and the frames are held until then: see `count`.
    """

    __slots__ = ("_chunks", "_crc")

    def __init__(self, chunks: Sequence[memoryview]) -> None:
        self._chunks: Sequence[memoryview] = chunks
        self._crc = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrameFingerprint) and self.checksum() == other.checksum()

    def __hash__(self) -> int:
        return hash(self.checksum())

    def checksum(self) -> int:
        """Work it out, and let the frames go."""
        for chunk in self._chunks:
            self._crc = zlib.crc32(chunk, self._crc)
        self._chunks = ()
        return self._crc


UNKNOWN_FINGERPRINT = FrameFingerprint(())
"""Of an episode that was taken up again, nobody knows what was shown."""


SessionKey = tuple[str, int]
"""Run and environment."""


class FrameKey(NamedTuple):
    """What a request shows of an episode; two that are equal are the same request."""

    episode_id: int
    step: int
    fingerprint: FrameFingerprint


@dataclass(frozen=True, kw_only=True)
class EpisodeBatch:
    """Which episodes a request is about."""

    client_id: str
    env_ids: tuple[int, ...]
    episode_ids: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.env_ids)

    @cached_property
    def keys(self) -> list[SessionKey]:
        """Of each row."""
        return [(self.client_id, env_id) for env_id in self.env_ids]


@dataclass(frozen=True, kw_only=True)
class SessionRequest:
    """A request about the memory of episodes."""

    episodes: EpisodeBatch
    steps: tuple[int, ...]
    fingerprints: tuple[FrameFingerprint, ...]
    """By each row: a retry shows the same again."""

    @cached_property
    def frame_keys(self) -> list[FrameKey]:
        """What each row shows."""
        return list(map(FrameKey, self.episodes.episode_ids, self.steps, self.fingerprints))


@dataclass(frozen=True, kw_only=True)
class FrameRequest(SessionRequest):
    """A frame of each."""

    views: Views
    return_state: bool


@dataclass(frozen=True, kw_only=True)
class ResetRequest(FrameRequest):
    """Episodes that begin."""

    instructions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class StepRequest(FrameRequest):
    """Episodes that go on."""


@dataclass(frozen=True, kw_only=True)
class RestoreRequest(SessionRequest):
    """Episodes that are taken up again."""

    state_rows: tuple[int, ...]
    num_state_rows: int
    state: memoryview


@dataclass(frozen=True, kw_only=True)
class FramePayload:
    """Frames whose header was believed, before anything is decoded."""

    view_names: tuple[str, ...]
    shape: tuple[int, ...]
    images: tuple[memoryview, ...] | None
    """Encoded ones; None: they are raw."""
    raw: memoryview
    view_major: bool = False
    """Whether raw ones follow each other view after view."""


def parse_header(header_type: type[HeaderT], header_json: bytes | memoryview) -> HeaderT:
    """The JSON of a request. Raises `RefusalError` for what is no JSON, and for what says something else."""
    try:
        return msgspec.json.decode(header_json, type=header_type, strict=True)
    except msgspec.ValidationError as error:
        raise RequestError(ErrorCode.VALIDATION_ERROR, f"the JSON does not fit: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(ErrorCode.BAD_REQUEST, f"the header is no JSON: {error}") from None


def parse_episodes(header: EpisodesHeader, limits: ServeLimits) -> EpisodeBatch:
    """Which episodes it is about: at least one, none twice."""
    if not CLIENT_ID_PATTERN.fullmatch(header.client_id):
        raise validation_error("client_id", header.client_id[:40], "1 to 128 letters, digits and . : _ -")
    num_rows = len(header.env_ids)
    if not 0 < num_rows <= limits.max_envs_per_request:
        raise validation_error("env_ids", f"{num_rows} of them", f"from 1 to {limits.max_envs_per_request}")
    for name in ("env_ids", "episode"):
        validate_counts(name, getattr(header, name), num_rows)
    if len(set(header.env_ids)) != num_rows:
        raise validation_error("env_ids", "one twice", "each once")
    return EpisodeBatch(
        client_id=header.client_id, env_ids=tuple(header.env_ids), episode_ids=tuple(header.episode_ids)
    )


def validate_counts(name: str, values: Sequence[int], num_rows: int) -> tuple[int, ...]:
    """A column of counts, one a row."""
    if len(values) != num_rows:
        raise validation_error(name, f"{len(values)} of them", f"{num_rows}, one for each env")
    for value in values:
        if not 0 <= value < MAX_SAFE_INTEGER:
            raise validation_error(name, value, "whole numbers from 0 to 2^53")
    return tuple(values)


def validate_instructions(instructions: Sequence[str], num_rows: int, limits: ServeLimits) -> tuple[str, ...]:
    """The instructions, one a row."""
    if len(instructions) != num_rows:
        raise validation_error("instructions", f"{len(instructions)} of them", f"{num_rows}, one for each env")
    for text in dict.fromkeys(instructions):
        if not text.strip() or len(text) > limits.max_instruction_chars:
            raise validation_error(
                "instructions", f"one of {len(text)} letters", f"1 to {limits.max_instruction_chars} letters"
            )
        if CONTROL_CHAR_PATTERN.search(text):
            raise validation_error("instructions", repr(text[:40]), "text without control characters")
    return tuple(instructions)


def validate_view_names(names: Sequence[str], limits: ServeLimits) -> tuple[str, ...]:
    """The views of a request."""
    if not 0 < len(names) <= limits.max_views or len(set(names)) != len(names):
        raise validation_error("views", f"{len(names)} of them", f"from 1 to {limits.max_views}, each once")
    for name in names:
        if not VIEW_NAME_PATTERN.fullmatch(name):
            raise validation_error("views", repr(name[:40]), "names of 1 to 64 letters, digits and . : / _ -")
    return tuple(names)


def parse_frames(
    header: FramesHeader, views: Sequence[str], num_rows: int, payload: memoryview, limits: ServeLimits
) -> FramePayload:
    """The frames, which must be exactly as long as they say."""
    names, shape = validate_view_names(views, limits), header.shape
    if shape[:2] != [num_rows, len(names)]:
        raise validation_error("frames.shape", shape[:8], f"[{num_rows}, {len(names)}, ...], environments and views")
    if header.image_bytes is not None:
        return FramePayload(view_names=names, shape=tuple(shape), images=split_images(header, payload), raw=payload)
    if len(shape) != 5 or shape[4] != 3 or not all(0 < side <= limits.max_image_side for side in shape[2:4]):
        raise validation_error(
            "frames.shape", shape[:8], f"[N, V, H, W, 3] with H and W from 1 to {limits.max_image_side}"
        )
    size = shape[0] * shape[1] * shape[2] * shape[3] * 3
    if size != len(payload):
        raise validation_error("frames", f"{len(payload)} bytes", f"{size}, for uint8 {shape}")
    return FramePayload(view_names=names, shape=tuple(shape), images=None, raw=payload, view_major=header.view_major)


def split_images(header: FramesHeader, payload: memoryview) -> tuple[memoryview, ...]:
    """The encoded images, one after the other."""
    lengths = header.image_bytes or []
    if len(header.shape) != 2 or len(lengths) != header.shape[0] * header.shape[1]:
        raise validation_error(
            "frames.lengths", f"{len(lengths)} of them", "one for each of N x V images of shape [N, V]"
        )
    if min(lengths) < 1 or sum(lengths) != len(payload):
        raise validation_error(
            "frames.lengths", f"{sum(lengths)} together", f"{len(payload)}, the bytes behind the JSON"
        )
    ends = np.cumsum([0, *lengths]).tolist()
    return tuple(payload[start:end] for start, end in pairwise(ends))


def fingerprint_rows(num_rows: int, frames: FramePayload) -> tuple[FrameFingerprint, ...]:
    """What each row shows."""
    num_views, raw = len(frames.view_names), frames.raw
    if frames.images is None:
        size = len(raw) // num_rows // (num_views if frames.view_major else 1)
        starts = range(0, len(raw), num_rows * size)
        return tuple(
            FrameFingerprint([raw[start + row * size : start + (row + 1) * size] for start in starts])
            for row in range(num_rows)
        )
    return tuple(FrameFingerprint(frames.images[row * num_views : (row + 1) * num_views]) for row in range(num_rows))


def validation_error(field: str, got: Any, expected: str) -> RequestError:
    """A field that is well-formed and does not fit."""
    return RequestError(ErrorCode.VALIDATION_ERROR, f"{field}: got {got}, expected {expected}")
