"""Reads request bodies within limits on size, total memory and time."""

import asyncio

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request

from embodied_rm.client.wire import HEADER_LENGTH_HEADER, TIMEOUT_HEADER
from embodied_rm.serve.http.connection_limits import STATE_KEY
from embodied_rm.serve.memory_budget import GrowTo
from embodied_rm.serve.request_errors import ErrorCode, RequestError
from embodied_rm.serve.service_config import ServeLimits

MAX_LENGTH_DIGITS = 9  # digits of a count in a header


def check_headers(headers: Headers, content_types: tuple[str, ...], limits: ServeLimits) -> int:
    """Return the declared length of the body, 0 if unknown. Raises `RequestError` if the body must not be read."""
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in content_types:
        reason = f"content-type is {content_type[:60] or 'missing'}, expected {' or '.join(content_types)}"
        raise RequestError(ErrorCode.UNSUPPORTED_MEDIA_TYPE, reason)
    if headers.get("content-encoding", "identity").lower() != "identity":
        reason = "compressed bodies are not supported: omit content-encoding"
        raise RequestError(ErrorCode.UNSUPPORTED_MEDIA_TYPE, reason)
    num_bytes = parse_count(headers, "content-length") or 0
    if num_bytes > limits.max_body_bytes:
        reason = f"the body has {num_bytes} bytes, more than {limits.max_body_bytes}"
        raise RequestError(ErrorCode.PAYLOAD_TOO_LARGE, reason)
    return num_bytes


async def read_body(request: Request, grow_to: GrowTo, limits: ServeLimits, declared_bytes: int) -> memoryview:
    """Return the body. Raises `RequestError` if it is too long or too slow."""
    grow_to(declared_bytes)
    buffer = request.scope.get("state", {}).get(STATE_KEY)
    chunks, num_bytes = [], 0
    try:
        async with asyncio.timeout(limits.body_timeout_s):
            if buffer is not None:
                return await buffer.receive()
            async for chunk in request.stream():
                num_bytes += len(chunk)
                if num_bytes > limits.max_body_bytes:
                    reason = f"the body has more than {limits.max_body_bytes} bytes"
                    raise RequestError(ErrorCode.PAYLOAD_TOO_LARGE, reason)
                grow_to(num_bytes)
                chunks.append(chunk)
    except TimeoutError:
        reason = f"the body did not arrive in {limits.body_timeout_s:g} s"
        raise RequestError(ErrorCode.REQUEST_TIMEOUT, reason) from None
    except (ClientDisconnect, ConnectionError):
        raise RequestError(ErrorCode.BAD_REQUEST, "the connection broke before the body was complete") from None
    return memoryview(b"".join(chunks))


def split_body(body: memoryview, headers: Headers, limits: ServeLimits) -> tuple[memoryview, memoryview]:
    """Split a body into its JSON and the bytes that follow. Raises `RequestError` if the lengths do not fit."""
    header_bytes = parse_count(headers, HEADER_LENGTH_HEADER.lower())
    header_bytes = len(body) if header_bytes is None else header_bytes
    if header_bytes > limits.max_header_kb << 10:
        reason = f"the JSON has {header_bytes} bytes, more than {limits.max_header_kb} KiB"
        raise RequestError(ErrorCode.PAYLOAD_TOO_LARGE, reason)
    if header_bytes > len(body):
        reason = f"{HEADER_LENGTH_HEADER} is {header_bytes}, but the body has {len(body)} bytes"
        raise RequestError(ErrorCode.BAD_REQUEST, reason)
    return body[:header_bytes], body[header_bytes:]


def remaining_seconds(headers: Headers, limits: ServeLimits) -> float:
    """Return the seconds until the deadline of a request."""
    timeout_ms = parse_count(headers, TIMEOUT_HEADER.lower())
    return limits.response_timeout_s if timeout_ms is None else min(timeout_ms / 1000, limits.response_timeout_s)


def parse_count(headers: Headers, name: str) -> int | None:
    """Return a count from a header; None without it. Raises `RequestError` for an invalid or repeated one."""
    values = headers.getlist(name)
    if not values:
        return None
    value = values[0]
    if len(values) > 1 or not (value.isascii() and value.isdigit() and len(value) <= MAX_LENGTH_DIGITS):
        raise RequestError(ErrorCode.BAD_REQUEST, f"{name} must be one integer, got {', '.join(values)[:60]}")
    return int(value)
