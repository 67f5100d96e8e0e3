"""Deadlines of whole requests: the timeouts of httpx start anew with each byte, so a server can reply for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Optional

import httpx

WRITE_BYTES = 1 << 16
"""Bytes of one write, after which the deadline is checked."""
MIN_TIMEOUT_S = 0.001
"""Seconds; 0 would mean not to wait at all."""
_CURRENT = threading.local()
"""The deadline of the request of this thread, in seconds; httpx serves a request in the thread that sends it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Limit the time of the requests in a block, for a client of `enforce_time_limits`.

    Raises:
        httpx.ReadTimeout: They took longer.
    """
    deadline_s = _CURRENT.deadline_s = time.monotonic() + seconds
    try:
        yield
    except httpx.TimeoutException as error:
        if time.monotonic() < deadline_s:
            raise
        raise httpx.ReadTimeout(f"it took longer than {seconds:g} s") from error
    finally:
        _CURRENT.deadline_s = None


def remaining_timeout(timeout: Optional[float]) -> Optional[float]:
    """Return the seconds that an operation may take, at most `timeout`; `httpx.ReadTimeout` if none are left."""
    deadline_s = getattr(_CURRENT, "deadline_s", None)
    if deadline_s is None:
        return timeout
    remaining_s = deadline_s - time.monotonic()
    if remaining_s <= 0:
        raise httpx.ReadTimeout("the deadline of the request has passed")
    return max(MIN_TIMEOUT_S, remaining_s if timeout is None else min(timeout, remaining_s))


class LimitedStream:
    """A connection of httpcore (`NetworkStream`) whose operations end at the deadline of their request."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: Optional[float] = None) -> bytes:
        return bytes(self._stream.read(max_bytes, remaining_timeout(timeout)))

    def write(self, buffer: bytes, timeout: Optional[float] = None) -> None:
        view = memoryview(buffer)
        for start in range(0, len(view), WRITE_BYTES):
            self._stream.write(view[start : start + WRITE_BYTES], remaining_timeout(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: Any, server_hostname: Optional[str] = None, timeout: Optional[float] = None
    ) -> LimitedStream:
        return LimitedStream(self._stream.start_tls(ssl_context, server_hostname, remaining_timeout(timeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class LimitedBackend:
    """Opens the connections of a pool of httpcore (`NetworkBackend`) as `LimitedStream`s."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def connect_tcp(self, *address: Any, timeout: Optional[float] = None, **options: Any) -> LimitedStream:
        return LimitedStream(self._backend.connect_tcp(*address, timeout=remaining_timeout(timeout), **options))

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)


def enforce_time_limits(client: httpx.Client) -> httpx.Client:
    """Let the requests of a client obey `time_limit`; return the client.

    httpx offers no other way to limit how long a server may take for the headers of a response.
    """
    for transport in (client._transport, *client._mounts.values()):
        pool = getattr(transport, "_pool", None)  # None: no proxy for some hosts
        if pool is not None:
            pool._network_backend = LimitedBackend(pool._network_backend)
    return client
