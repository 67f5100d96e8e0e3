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

from embodied_rm.serve.config import Limits
from embodied_rm.serve.refusal import RefusalError, Why
from embodied_rm.types import Views

RUN = re.compile(r"[\w.:-]{1,128}")
"""What a run, a client's own name for itself, may be called."""
VIEW = re.compile(r"[\w.:/-]{1,64}")
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
"""Letters that no instruction has."""
LARGEST = 1 << 53
"""Of a number that every JSON reader can hold."""

T = TypeVar("T")


class Asked(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What all requests about sessions say: whose, and of which episodes."""

    run: str
    env: list[int]
    episode: list[int]


class FramesHeader(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How the frames behind the JSON are written."""

    shape: list[int]
    """[N, V, H, W, 3] of raw pixels, [N, V] of pictures."""
    by_view: bool = False
    """Whether the raw pixels of all environments follow each other view after view: [V, N, H, W, 3] in memory."""
    lengths: list[int] | None = None
    """Bytes of each JPEG or PNG, view after view, environment after environment; None: the pixels are raw."""


class ShowingHeader(Asked, kw_only=True):
    """What requests say that show a frame of each."""

    views: list[str]
    frames: FramesHeader
    state: bool = False
    """Whether the memory is sent along, see `RestoreHeader`."""


class BeginHeader(ShowingHeader, kw_only=True):
    """Episodes begin: their first frames."""

    instruction: list[str]


class AdvanceHeader(ShowingHeader, kw_only=True):
    """Episodes go on: one more frame each, the `step`-th since the first."""

    step: list[int]


class EndHeader(Asked, kw_only=True):
    """Episodes are over, or of no more interest."""


class RestoreHeader(Asked, kw_only=True):
    """Episodes that another service, or this one before it died, remembered so far: their memory is sent back."""

    step: list[int]
    row: list[int]
    """Which of the episodes that the memory is of each of them is."""
    rows: int
    """How many it is of."""
    state: int
    """Bytes of it, as they were sent along."""


class Shown:
    """What a row shows, by a number for it: equal where it is shown again, as it was sent.

    The number is worked out when somebody asks, and the frames are held until then: see `count`.
    """

    __slots__ = ("_content", "_crc")

    def __init__(self, content: Sequence[memoryview]) -> None:
        self._content: Sequence[memoryview] = content
        self._crc = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shown) and self.count() == other.count()

    def __hash__(self) -> int:
        return hash(self.count())

    def count(self) -> int:
        """Work it out, and let the frames go."""
        for part in self._content:
            self._crc = zlib.crc32(part, self._crc)
        self._content = ()
        return self._crc


UNSEEN = Shown(())
"""Of an episode that was taken up again, nobody knows what was shown."""


Key = tuple[str, int]
"""Run and environment."""


class Moment(NamedTuple):
    """What a request shows of an episode; two that are equal are the same request."""

    episode: int
    step: int
    shown: Shown


@dataclass(frozen=True, kw_only=True)
class Episodes:
    """Which episodes a request is about."""

    run: str
    env: tuple[int, ...]
    episode: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.env)

    @cached_property
    def keys(self) -> list[Key]:
        """Of each row."""
        return [(self.run, env) for env in self.env]


@dataclass(frozen=True, kw_only=True)
class Call:
    """A request about the memory of episodes."""

    of: Episodes
    step: tuple[int, ...]
    shown: tuple[Shown, ...]
    """By each row: a retry shows the same again."""

    @cached_property
    def moments(self) -> list[Moment]:
        """What each row shows."""
        return list(map(Moment, self.of.episode, self.step, self.shown))


@dataclass(frozen=True, kw_only=True)
class Showing(Call):
    """A frame of each."""

    views: Views
    state: bool


@dataclass(frozen=True, kw_only=True)
class Begin(Showing):
    """Episodes that begin."""

    instructions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Advance(Showing):
    """Episodes that go on."""


@dataclass(frozen=True, kw_only=True)
class Restore(Call):
    """Episodes that are taken up again."""

    row: tuple[int, ...]
    rows: int
    state: memoryview


@dataclass(frozen=True, kw_only=True)
class Pixels:
    """Frames whose header was believed, before anything is decoded."""

    names: tuple[str, ...]
    shape: tuple[int, ...]
    pictures: tuple[memoryview, ...] | None
    """Encoded ones; None: they are raw."""
    raw: memoryview
    by_view: bool = False
    """Whether raw ones follow each other view after view."""


def header_of(kind: type[T], text: bytes | memoryview) -> T:
    """The JSON of a request. Raises `RefusalError` for what is no JSON, and for what says something else."""
    try:
        return msgspec.json.decode(text, type=kind, strict=True)
    except msgspec.ValidationError as fault:
        raise RefusalError(Why.DOES_NOT_FIT, f"the JSON does not fit: {fault}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise RefusalError(Why.UNPARSABLE, f"the header is no JSON: {fault}") from None


def episodes_of(header: Asked, limits: Limits) -> Episodes:
    """Which episodes it is about: at least one, none twice."""
    if not RUN.fullmatch(header.run):
        raise unfit("run", header.run[:40], "1 to 128 letters, digits and . : _ -")
    rows = len(header.env)
    if not 0 < rows <= limits.rows:
        raise unfit("env", f"{rows} of them", f"from 1 to {limits.rows}")
    for name in ("env", "episode"):
        counted(name, getattr(header, name), rows)
    if len(set(header.env)) != rows:
        raise unfit("env", "one twice", "each once")
    return Episodes(run=header.run, env=tuple(header.env), episode=tuple(header.episode))


def counted(name: str, column: Sequence[int], rows: int) -> tuple[int, ...]:
    """A column of counts, one a row."""
    if len(column) != rows:
        raise unfit(name, f"{len(column)} of them", f"{rows}, one for each env")
    for value in column:
        if not 0 <= value < LARGEST:
            raise unfit(name, value, "whole numbers from 0 to 2^53")
    return tuple(column)


def told(instructions: Sequence[str], rows: int, limits: Limits) -> tuple[str, ...]:
    """The instructions, one a row."""
    if len(instructions) != rows:
        raise unfit("instruction", f"{len(instructions)} of them", f"{rows}, one for each env")
    for text in dict.fromkeys(instructions):
        if not text.strip() or len(text) > limits.text:
            raise unfit("instruction", f"one of {len(text)} letters", f"1 to {limits.text} letters")
        if CONTROL.search(text):
            raise unfit("instruction", repr(text[:40]), "text without control characters")
    return tuple(instructions)


def view_names(names: Sequence[str], limits: Limits) -> tuple[str, ...]:
    """The views of a request."""
    if not 0 < len(names) <= limits.views or len(set(names)) != len(names):
        raise unfit("views", f"{len(names)} of them", f"from 1 to {limits.views}, each once")
    for name in names:
        if not VIEW.fullmatch(name):
            raise unfit("views", repr(name[:40]), "names of 1 to 64 letters, digits and . : / _ -")
    return tuple(names)


def pixels_of(header: FramesHeader, views: Sequence[str], rows: int, blob: memoryview, limits: Limits) -> Pixels:
    """The frames, which must be exactly as long as they say."""
    names, shape = view_names(views, limits), header.shape
    if shape[:2] != [rows, len(names)]:
        raise unfit("frames.shape", shape[:8], f"[{rows}, {len(names)}, ...], environments and views")
    if header.lengths is not None:
        return Pixels(names=names, shape=tuple(shape), pictures=pictures_in(header, blob), raw=blob)
    if len(shape) != 5 or shape[4] != 3 or not all(0 < side <= limits.side for side in shape[2:4]):
        raise unfit("frames.shape", shape[:8], f"[N, V, H, W, 3] with H and W from 1 to {limits.side}")
    size = shape[0] * shape[1] * shape[2] * shape[3] * 3
    if size != len(blob):
        raise unfit("frames", f"{len(blob)} bytes", f"{size}, for uint8 {shape}")
    return Pixels(names=names, shape=tuple(shape), pictures=None, raw=blob, by_view=header.by_view)


def pictures_in(header: FramesHeader, blob: memoryview) -> tuple[memoryview, ...]:
    """The encoded pictures, one after the other."""
    lengths = header.lengths or []
    if len(header.shape) != 2 or len(lengths) != header.shape[0] * header.shape[1]:
        raise unfit("frames.lengths", f"{len(lengths)} of them", "one for each of N x V pictures of shape [N, V]")
    if min(lengths) < 1 or sum(lengths) != len(blob):
        raise unfit("frames.lengths", f"{sum(lengths)} together", f"{len(blob)}, the bytes behind the JSON")
    ends = np.cumsum([0, *lengths]).tolist()
    return tuple(blob[start:end] for start, end in pairwise(ends))


def shown_in(rows: int, pixels: Pixels) -> tuple[Shown, ...]:
    """What each row shows."""
    each, raw = len(pixels.names), pixels.raw
    if pixels.pictures is None:
        size = len(raw) // rows // (each if pixels.by_view else 1)
        starts = range(0, len(raw), rows * size)
        return tuple(Shown([raw[s + row * size : s + (row + 1) * size] for s in starts]) for row in range(rows))
    return tuple(Shown(pixels.pictures[row * each : (row + 1) * each]) for row in range(rows))


def unfit(field: str, got: Any, expected: str) -> RefusalError:
    """A field that is well-formed and does not fit."""
    return RefusalError(Why.DOES_NOT_FIT, f"{field}: got {got}, expected {expected}")
