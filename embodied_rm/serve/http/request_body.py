"""The body of a request, of which no more is held than is allowed, however much is sent and however slowly."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request

from embodied_rm.serve.client.wire import HEADER_LENGTH_HEADER, TIMEOUT_HEADER
from embodied_rm.serve.http.body_buffer import STATE_KEY
from embodied_rm.serve.request_errors import ErrorCode, RequestError
from embodied_rm.serve.service_config import ServeLimits

JSON_CONTENT_TYPE = "application/json"
MAX_LENGTH_DIGITS = 9
"""Of a length in a header."""


class BodyBudget:
    """Bytes of all bodies that are held, or still arriving."""

    def __init__(self, limits: ServeLimits) -> None:
        self._limits = limits
        self.reserved_bytes = 0

    @contextmanager
    def reserve(self) -> Iterator[BodyReservation]:
        """The part of one request, given back at the end."""
        reservation = BodyReservation(self)
        try:
            yield reservation
        finally:
            self.reserved_bytes -= reservation.num_bytes

    def acquire(self, num_bytes: int) -> None:
        """Raises `RefusalError` where there is not so much left."""
        if self.reserved_bytes + num_bytes > self._limits.max_queue_bytes:
            raise RequestError(
                ErrorCode.TOO_MANY_REQUESTS,
                "the requests that are waiting are as large as they may be",
                retry_after_s=1.0,
            )
        self.reserved_bytes += num_bytes


class BodyReservation:
    """What one request has of it."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget, self.num_bytes = budget, 0

    def grow_to(self, num_bytes: int) -> None:
        """Have at least so much. Raises `RefusalError` where that is not left."""
        if num_bytes > self.num_bytes:
            self._budget.acquire(num_bytes - self.num_bytes)
            self.num_bytes = num_bytes


def check_headers(headers: Headers, content_types: tuple[str, ...], limits: ServeLimits) -> int:
    """The bytes that a request says it has, 0 where it does not. Raises `RefusalError` for one that is not read."""
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in content_types:
        raise RequestError(
            ErrorCode.UNSUPPORTED_MEDIA_TYPE,
            f"content-type is {content_type[:60] or 'missing'}, expected {' or '.join(content_types)}",
        )
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise RequestError(
            ErrorCode.UNSUPPORTED_MEDIA_TYPE, "compressed bodies are not read: leave content-encoding out"
        )
    num_bytes = parse_count(headers, "content-length") or 0
    if num_bytes > limits.max_body_bytes:
        raise RequestError(
            ErrorCode.PAYLOAD_TOO_LARGE, f"the body has {num_bytes} bytes, at most {limits.max_body_bytes} are read"
        )
    return num_bytes


async def read_body(
    request: Request, reservation: BodyReservation, limits: ServeLimits, declared_bytes: int
) -> memoryview:
    """All of it. Raises `RefusalError` for one that is too long or too slow."""
    reservation.grow_to(declared_bytes)
    buffer = request.scope.get("state", {}).get(STATE_KEY)
    chunks, num_bytes = [], 0
    try:
        async with asyncio.timeout(limits.body_timeout_s):
            if buffer is not None:
                return await buffer.receive()
            async for chunk in request.stream():
                num_bytes += len(chunk)
                if num_bytes > limits.max_body_bytes:
                    raise RequestError(
                        ErrorCode.PAYLOAD_TOO_LARGE, f"the body has more than {limits.max_body_bytes} bytes"
                    )
                reservation.grow_to(num_bytes)
                chunks.append(chunk)
    except TimeoutError:
        raise RequestError(
            ErrorCode.REQUEST_TIMEOUT, f"the body did not arrive in {limits.body_timeout_s:g} s"
        ) from None
    except (ClientDisconnect, ConnectionError):
        raise RequestError(ErrorCode.BAD_REQUEST, "the connection broke before the body was whole") from None
    return memoryview(b"".join(chunks))


def split_body(body: memoryview, headers: Headers, limits: ServeLimits) -> tuple[memoryview, memoryview]:
    """The JSON of a body and what follows it. Raises `RefusalError` where the two do not fit."""
    header_bytes = parse_count(headers, HEADER_LENGTH_HEADER.lower())
    header_bytes = len(body) if header_bytes is None else header_bytes
    if header_bytes > limits.max_header_kb << 10:
        raise RequestError(
            ErrorCode.PAYLOAD_TOO_LARGE,
            f"the JSON has {header_bytes} bytes, at most {limits.max_header_kb} KB are read",
        )
    if header_bytes > len(body):
        raise RequestError(
            ErrorCode.BAD_REQUEST, f"{HEADER_LENGTH_HEADER} is {header_bytes}, the whole body has {len(body)} bytes"
        )
    return body[:header_bytes], body[header_bytes:]


def remaining_seconds(headers: Headers, limits: ServeLimits) -> float:
    """How long an answer is of use."""
    timeout_ms = parse_count(headers, TIMEOUT_HEADER.lower())
    return limits.response_timeout_s if timeout_ms is None else min(timeout_ms / 1000, limits.response_timeout_s)


def parse_count(headers: Headers, name: str) -> int | None:
    """A count in a header; None where it is not there. Raises `RefusalError` for what is no count, or several."""
    values = headers.getlist(name)
    if not values:
        return None
    value = values[0]
    if len(values) > 1 or not (value.isascii() and value.isdigit() and len(value) <= MAX_LENGTH_DIGITS):
        raise RequestError(ErrorCode.BAD_REQUEST, f"{name} must be one whole number, got {', '.join(values)[:60]}")
    return int(value)
