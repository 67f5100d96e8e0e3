"""Request headers as they arrive, and the validated requests that are built from them."""

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from embodied_rm.serve.request_errors import ErrorCode, RequestError, validation_error
from embodied_rm.serve.service_config import ServeLimits
from embodied_rm.types import Frames, Views

CLIENT_ID_PATTERN = re.compile(r"[\w.:-]{1,128}")  # Allowed client ids. The client chooses its own.
VIEW_NAME_PATTERN = re.compile(r"[\w.:/-]{1,64}")
CONTROL_CHAR_PATTERN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
"""Characters that an instruction must not contain."""
MAX_SAFE_INTEGER = 1 << 53  # largest integer that every JSON parser represents exactly

HeaderT = TypeVar("HeaderT")


class EpisodesHeader(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Fields of every session request: the client and its episodes."""

    client_id: str
    env_ids: list[int]
    episode_ids: list[int]


class FramesHeader(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Encoding of the frames that follow the JSON."""

    shape: list[int]  # [N, V, H, W, 3] for raw pixels, [N, V] for encoded images
    view_major: bool = False  # whether raw pixels are ordered by view: [V, N, H, W, 3] in memory
    image_bytes: list[int] | None = None
    """Size of each JPEG or PNG, in bytes, ordered by environment, then by view. None: the pixels are raw."""


class FrameRequestHeader(EpisodesHeader, kw_only=True):
    """Fields of the requests that carry one frame per environment."""

    views: list[str]
    frames: FramesHeader
    return_state: bool = False  # whether the response includes the episode states, see `RestoreHeader`


class ResetHeader(FrameRequestHeader, kw_only=True):
    """Start episodes with their first frames."""

    instructions: list[str]


class StepHeader(FrameRequestHeader, kw_only=True):
    """Continue episodes: one more frame each, number `steps` after the first."""

    steps: list[int]


class RestoreHeader(EpisodesHeader, kw_only=True):
    """Restore episodes from the state that a service returned earlier."""

    steps: list[int]
    state_rows: list[int]  # row of each episode within the state
    num_state_rows: int
    state_bytes: int


class FrameFingerprint:
    """Digest of one row's frames and of what describes them, equal for a retry alone. It is computed on first use."""

    __slots__ = ("_chunks", "_description", "_digest")

    def __init__(self, chunks: Sequence[memoryview], description: bytes = b"") -> None:
        self._chunks, self._description, self._digest = chunks, description, b""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrameFingerprint) and self.digest() == other.digest()

    def __hash__(self) -> int:
        return hash(self.digest())

    def digest(self) -> bytes:
        """Compute the digest and release the frames."""
        if not self._digest:
            digest = hashlib.sha256(self._description)
            for chunk in self._chunks:
                digest.update(chunk)
            self._chunks, self._description, self._digest = (), b"", digest.digest()
        return self._digest


UNKNOWN_FINGERPRINT = FrameFingerprint(())  # fingerprint of a restored episode: its last frames are not known
SessionKey = tuple[str, int]  # client id and environment id


class FrameKey(NamedTuple):
    """Identity of one frame of an episode. Equal keys mean the same request."""

    episode_id: int
    step: int
    fingerprint: FrameFingerprint


@dataclass(frozen=True)
class EpisodeBatch:
    """The episodes of one request, one row per environment."""

    client_id: str
    env_ids: tuple[int, ...]
    episode_ids: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.env_ids)

    @cached_property
    def keys(self) -> list[SessionKey]:
        """The session key of each row."""
        return [(self.client_id, env_id) for env_id in self.env_ids]


@dataclass(frozen=True, kw_only=True)
class SessionRequest:
    """A validated request that changes the state of episodes."""

    episodes: EpisodeBatch
    steps: tuple[int, ...]
    fingerprints: tuple[FrameFingerprint, ...]  # one per row, to recognize retries

    @cached_property
    def frame_keys(self) -> list[FrameKey]:
        """The frame key of each row."""
        return list(map(FrameKey, self.episodes.episode_ids, self.steps, self.fingerprints))


@dataclass(frozen=True, kw_only=True)
class FrameRequest(SessionRequest):
    """A request with one frame per row."""

    views: Views
    return_state: bool
    instructions: tuple[str, ...] | None = None  # of episodes that start; None: the episodes continue


class StatePayload(NamedTuple):
    """A state that a client sent back, of `num_rows` episodes."""

    content: memoryview
    num_rows: int
    row_indices: tuple[int, ...]  # rows to restore


@dataclass(frozen=True, kw_only=True)
class RestoreRequest(SessionRequest):
    """Episodes that are restored."""

    payload: StatePayload


@dataclass(frozen=True, kw_only=True)
class FramePayload:
    """Frames whose header is validated, before decoding."""

    view_names: tuple[str, ...]
    shape: tuple[int, ...]
    images: tuple[memoryview, ...] | None  # encoded images; None: `raw` holds pixels
    raw: memoryview
    view_major: bool = False  # whether raw pixels are ordered by view

    def view_pixels(self) -> Frames:
        """Return raw pixels as uint8 [N, V, H, W, 3], without a copy."""
        num_rows, num_views, *size = self.shape
        if self.view_major:
            return np.frombuffer(self.raw, np.uint8).reshape(num_views, num_rows, *size).swapaxes(0, 1)
        return np.frombuffer(self.raw, np.uint8).reshape(self.shape)


def parse_header(header_type: type[HeaderT], header_json: bytes | memoryview) -> HeaderT:
    """Parse the JSON of a request. Raises `RequestError` for invalid JSON, and with another code for wrong fields."""
    try:
        return msgspec.json.decode(header_json, type=header_type, strict=True)
    except msgspec.ValidationError as error:
        raise RequestError(ErrorCode.VALIDATION_ERROR, f"invalid field in the JSON: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(ErrorCode.BAD_REQUEST, f"the header is not valid JSON: {error}") from None


def parse_episodes(header: EpisodesHeader, limits: ServeLimits) -> EpisodeBatch:
    """Return the episodes of a request: at least one, each environment once."""
    if not CLIENT_ID_PATTERN.fullmatch(header.client_id):
        raise validation_error("client_id", header.client_id[:40], "1 to 128 letters, digits and . : _ -")
    num_rows = len(header.env_ids)
    if not 0 < num_rows <= limits.max_envs_per_request:
        raise validation_error("env_ids", f"{num_rows} entries", f"from 1 to {limits.max_envs_per_request}")
    for name in ("env_ids", "episode_ids"):
        validate_counts(name, getattr(header, name), num_rows)
    if len(set(header.env_ids)) != num_rows:
        raise validation_error("env_ids", "a duplicate", "each environment once")
    return EpisodeBatch(header.client_id, tuple(header.env_ids), tuple(header.episode_ids))


def validate_counts(name: str, values: Sequence[int], num_rows: int) -> tuple[int, ...]:
    """Check a list of counts: one per row, each from 0 to 2^53."""
    if len(values) != num_rows:
        raise validation_error(name, f"{len(values)} entries", f"{num_rows}, one per environment")
    for value in values:
        if not 0 <= value < MAX_SAFE_INTEGER:
            raise validation_error(name, value, "integers from 0 to 2^53")
    return tuple(values)


def validate_instructions(instructions: Sequence[str], num_rows: int, limits: ServeLimits) -> tuple[str, ...]:
    """Check the instructions, one per row."""
    if len(instructions) != num_rows:
        raise validation_error("instructions", f"{len(instructions)} entries", f"{num_rows}, one per environment")
    for text in dict.fromkeys(instructions):
        if not text.strip() or len(text) > limits.max_instruction_chars:
            expected = f"1 to {limits.max_instruction_chars} characters"
            raise validation_error("instructions", f"one with {len(text)} characters", expected)
        if CONTROL_CHAR_PATTERN.search(text):
            raise validation_error("instructions", repr(text[:40]), "text without control characters")
    return tuple(instructions)


def validate_view_names(names: Sequence[str], limits: ServeLimits) -> tuple[str, ...]:
    """Check the view names of a request."""
    if not 0 < len(names) <= limits.max_views or len(set(names)) != len(names):
        raise validation_error("views", f"{len(names)} entries", f"from 1 to {limits.max_views}, each once")
    for name in names:
        if not VIEW_NAME_PATTERN.fullmatch(name):
            raise validation_error("views", repr(name[:40]), "names of 1 to 64 letters, digits and . : / _ -")
    return tuple(names)


def parse_frames(
    header: FramesHeader, views: Sequence[str], num_rows: int, payload: memoryview, limits: ServeLimits
) -> FramePayload:
    """Check that the frames have exactly the size that the header declares."""
    names, shape = validate_view_names(views, limits), header.shape
    if shape[:2] != [num_rows, len(names)]:
        raise validation_error("frames.shape", shape[:8], f"[{num_rows}, {len(names)}, ...], environments and views")
    if header.image_bytes is not None:
        return FramePayload(view_names=names, shape=tuple(shape), images=split_images(header, payload), raw=payload)
    if len(shape) != 5 or shape[4] != 3 or not all(0 < side <= limits.max_image_side for side in shape[2:4]):
        expected = f"[N, V, H, W, 3] with H and W from 1 to {limits.max_image_side}"
        raise validation_error("frames.shape", shape[:8], expected)
    size = math.prod(shape)
    if size != len(payload):
        raise validation_error("frames", f"{len(payload)} bytes", f"{size}, for uint8 {shape}")
    return FramePayload(view_names=names, shape=tuple(shape), images=None, raw=payload, view_major=header.view_major)


def split_images(header: FramesHeader, payload: memoryview) -> tuple[memoryview, ...]:
    """Split the payload into encoded images."""
    lengths = header.image_bytes or []
    if len(header.shape) != 2 or len(lengths) != header.shape[0] * header.shape[1]:
        expected = "N x V, one per image, for shape [N, V]"
        raise validation_error("frames.image_bytes", f"{len(lengths)} entries", expected)
    if min(lengths) < 1 or sum(lengths) != len(payload):
        expected = f"{len(payload)}, the bytes after the JSON"
        raise validation_error("frames.image_bytes", f"{sum(lengths)} bytes in total", expected)
    ends = np.cumsum([0, *lengths]).tolist()
    return tuple(payload[start:end] for start, end in pairwise(ends))


def fingerprint_rows(
    num_rows: int, frames: FramePayload, instructions: Sequence[str] | None
) -> tuple[FrameFingerprint, ...]:
    """Return one fingerprint per row. `instructions`: of episodes that start; None: the episodes continue."""
    num_views, raw = len(frames.view_names), frames.raw
    if frames.images is not None:
        rows = [frames.images[row * num_views : (row + 1) * num_views] for row in range(num_rows)]
    else:
        size = len(raw) // num_rows // (num_views if frames.view_major else 1)
        starts = range(0, len(raw), num_rows * size)
        rows = [tuple(raw[start + row * size :][:size] for start in starts) for row in range(num_rows)]
    fingerprints = []
    for row, chunks in enumerate(rows):
        layout = frames.shape[2:] if frames.images is None else tuple(map(len, chunks))
        instruction = None if instructions is None else instructions[row]
        description = repr((frames.images is None, frames.view_names, layout, instruction))
        fingerprints.append(FrameFingerprint(chunks, description.encode()))
    return tuple(fingerprints)
