"""HTTP requests whose responses are limited in size and time, and never inflated: any server may answer."""

from __future__ import annotations

from typing import Any, Optional

import httpx

from .client_errors import UnexpectedResponseError
from .deadlines import time_limit

PLAIN = "identity"


def send_request(
    client: httpx.Client, method: str, url: str, *, timeout_s: float, max_bytes: int, **options: Any
) -> httpx.Response:
    """Send a request, and read the whole response.

    Args:
        client: The connection, of `enforce_time_limits`.
        method: Method, such as "POST".
        url: Address, relative to that of the client.
        timeout_s: Seconds that the request and its response may take.
        max_bytes: Largest body.
        **options: Of `httpx.Client.stream`.

    Raises:
        httpx.TransportError: The server cannot be reached, or takes too long.
        UnexpectedResponseError: The body is longer, or compressed although none was asked for.
    """
    content = bytearray()
    headers = {**(options.pop("headers", None) or {}), "Accept-Encoding": PLAIN}
    with time_limit(timeout_s), client.stream(method, url, headers=headers, **options) as response:
        if response.headers.get("Content-Encoding", PLAIN) != PLAIN:
            raise UnexpectedResponseError("it is compressed")
        for chunk in response.iter_bytes():
            content += chunk
            if len(content) > max_bytes:
                raise UnexpectedResponseError(f"it has more than {max_bytes >> 20} MiB")
    return httpx.Response(
        response.status_code, headers=response.headers, content=bytes(content), request=response.request
    )


def parse_retry_after(value: Optional[str]) -> Optional[float]:
    """Return the seconds of a Retry-After header; None if it is missing or a date."""
    return float(value) if value is not None and value.isascii() and value.isdigit() else None
