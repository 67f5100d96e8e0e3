"""The body of a request, of which no more is held than is allowed, however much is sent and however slowly."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request

from embodied_rm.serve.client.wire import LENGTH, TIMEOUT
from embodied_rm.serve.config import Limits
from embodied_rm.serve.http.incoming import KEY
from embodied_rm.serve.refusal import RefusalError, Why

JSON = "application/json"
DIGITS = 9
"""Of a length in a header."""


class Room:
    """Bytes of all bodies that are held, or still arriving."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.held = 0

    @contextmanager
    def kept(self) -> Iterator[Share]:
        """The part of one request, given back at the end."""
        share = Share(self)
        try:
            yield share
        finally:
            self.held -= share.size

    def take(self, size: int) -> None:
        """Raises `RefusalError` where there is not so much left."""
        if self.held + size > self._limits.queue_bytes:
            raise RefusalError(Why.FULL, "the requests that are waiting are as large as they may be", retry_after=1.0)
        self.held += size


class Share:
    """What one request has of it."""

    def __init__(self, room: Room) -> None:
        self._room, self.size = room, 0

    def grow(self, size: int) -> None:
        """Have at least so much. Raises `RefusalError` where that is not left."""
        if size > self.size:
            self._room.take(size - self.size)
            self.size = size


def refuse_headers(headers: Headers, kinds: tuple[str, ...], limits: Limits) -> int:
    """The bytes that a request says it has, 0 where it does not. Raises `RefusalError` for one that is not read."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in kinds:
        raise RefusalError(Why.WRONG_TYPE, f"content-type is {kind[:60] or 'missing'}, expected {' or '.join(kinds)}")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise RefusalError(Why.WRONG_TYPE, "compressed bodies are not read: leave content-encoding out")
    size = number_in(headers, "content-length") or 0
    if size > limits.body:
        raise RefusalError(Why.TOO_LARGE, f"the body has {size} bytes, at most {limits.body} are read")
    return size


async def read_body(request: Request, share: Share, limits: Limits, declared: int) -> memoryview:
    """All of it. Raises `RefusalError` for one that is too long or too slow."""
    share.grow(declared)
    incoming = request.scope.get("state", {}).get(KEY)
    chunks, size = [], 0
    try:
        async with asyncio.timeout(limits.body_s):
            if incoming is not None:
                return await incoming.accept()
            async for chunk in request.stream():
                size += len(chunk)
                if size > limits.body:
                    raise RefusalError(Why.TOO_LARGE, f"the body has more than {limits.body} bytes")
                share.grow(size)
                chunks.append(chunk)
    except TimeoutError:
        raise RefusalError(Why.SLOW_BODY, f"the body did not arrive in {limits.body_s:g} s") from None
    except (ClientDisconnect, ConnectionError):
        raise RefusalError(Why.UNPARSABLE, "the connection broke before the body was whole") from None
    return memoryview(b"".join(chunks))


def parts_of(body: memoryview, headers: Headers, limits: Limits) -> tuple[memoryview, memoryview]:
    """The JSON of a body and what follows it. Raises `RefusalError` where the two do not fit."""
    length = number_in(headers, LENGTH.lower())
    length = len(body) if length is None else length
    if length > limits.header_kb << 10:
        raise RefusalError(Why.TOO_LARGE, f"the JSON has {length} bytes, at most {limits.header_kb} KB are read")
    if length > len(body):
        raise RefusalError(Why.UNPARSABLE, f"{LENGTH} is {length}, the whole body has {len(body)} bytes")
    return body[:length], body[length:]


def seconds_left(headers: Headers, limits: Limits) -> float:
    """How long an answer is of use."""
    told = number_in(headers, TIMEOUT.lower())
    return limits.timeout_s if told is None else min(told / 1000, limits.timeout_s)


def number_in(headers: Headers, name: str) -> int | None:
    """A count in a header; None where it is not there. Raises `RefusalError` for what is no count, or several."""
    values = headers.getlist(name)
    if not values:
        return None
    value = values[0]
    if len(values) > 1 or not (value.isascii() and value.isdigit() and len(value) <= DIGITS):
        raise RefusalError(Why.UNPARSABLE, f"{name} must be one whole number, got {', '.join(values)[:60]}")
    return int(value)
