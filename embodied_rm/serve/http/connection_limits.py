"""uvicorn's HTTP protocol with limits on connections and headers, and bodies without copies."""

import asyncio
import math
from typing import Any, ClassVar, NoReturn

import numpy as np

from embodied_rm.serve.http.sequential_protocol import SequentialProtocol
from embodied_rm.serve.service_config import ServeLimits

MAX_HEADER_BYTES = 32 << 10  # bytes of request line and headers
MAX_HEADERS = 100  # number of headers per request
STATE_KEY = "body_buffer"  # key of the body's buffer in the state of a request
HEADERS_TOO_LARGE_STATUS = b"431 Request Header Fields Too Large"


class BodyBuffer:
    """The body of a request with known length, received into its final buffer. Nothing is allocated before `receive`.

    uvicorn passes bodies on in chunks that the application joins: four copies of every byte. For frames of 64
    environments that took 1 ms, a sixth of the inference time.
    """

    def __init__(self, cycle: Any, num_bytes: int) -> None:
        """`cycle`: uvicorn's request cycle, which holds the first chunks."""
        self.num_bytes = num_bytes
        self._cycle, self._num_received = cycle, 0
        self._buffer: memoryview | None = None
        self._completed: asyncio.Future[None] | None = None

    async def receive(self) -> memoryview:
        """Allocate the buffer and wait for the body. Raises `ConnectionError` if the client disconnects."""
        buffer = self._buffer = np.empty(self.num_bytes, np.uint8).data
        cycle, self._cycle = self._cycle, None  # the cycle refers to this object: both would outlive the request
        first_chunk, cycle.body = cycle.body, b""
        cycle.flow.resume_reading()
        try:
            if not self.append(first_chunk):
                self._completed = asyncio.get_running_loop().create_future()
                await self._completed
        finally:
            self._buffer = None
        return buffer

    @property
    def is_receiving(self) -> bool:
        """Whether chunks are to be appended."""
        return self._buffer is not None

    def append(self, chunk: bytes) -> bool:
        """Append a chunk. Returns whether the body is complete. The parser passes no more than the declared length."""
        assert self._buffer is not None
        end = self._num_received + len(chunk)
        self._buffer[self._num_received : end] = chunk
        self._num_received = end
        if end == self.num_bytes and self._completed is not None and not self._completed.done():
            self._completed.set_result(None)
        return end == self.num_bytes

    def abort(self) -> None:
        """Fail the pending `receive`: the client has disconnected."""
        if self._completed is not None and not self._completed.done():
            self._completed.set_exception(ConnectionError("the connection broke"))


class LimitedProtocol(SequentialProtocol):
    """Closes the longest idle connection for one too many, and those with slow or oversized headers.

    Closes those of clients that do not read: after `limits.body_timeout_s`, or earlier where the unread responses of
    all connections exceed `limits.max_queue_mb`, beginning with the largest.
    """

    limits: ClassVar[ServeLimits]
    _num_header_bytes = 0
    _idle_since_s = math.inf  # when the connection was opened or the last response ended
    _timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None  # while the client does not read
    _body_buffer: BodyBuffer | None = None
    _headers_too_large = False  # whether the parser was stopped because of the headers' size

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.limits.max_connections:
            connections: Any = self.connections
            min(connections, key=LimitedProtocol._eviction_key).transport.abort()
        self._idle_since_s = self.loop.time()
        self._start_header_timer()

    def _eviction_key(self) -> tuple[bool, bool, float]:
        """Sort idle connections before others, then those without any request, then by time."""
        return not self.is_idle, self.cycle is not None, self._idle_since_s

    def on_response_complete(self) -> None:
        self._idle_since_s = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_timer = self.loop.call_later(self.limits.body_timeout_s, self.transport.abort)
        connections: Any = self.connections
        unread_bytes = {c: c.transport.get_write_buffer_size() for c in connections if c._unread_timer is not None}
        while sum(unread_bytes.values()) > self.limits.max_queue_bytes:
            largest = max(unread_bytes, key=lambda connection: unread_bytes[connection])
            largest.transport.abort()
            del unread_bytes[largest]

    def resume_writing(self) -> None:
        self._cancel_unread_timer()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        self._cancel_unread_timer()
        if self._body_buffer is not None:
            self._body_buffer.abort()
        super().connection_lost(exc)

    def parse_part(self, part: bytes) -> None:
        if self._awaiting_headers:
            self._num_header_bytes += len(part)
            if self._timer is None:
                self._start_header_timer()
        super().parse_part(part)
        if self._awaiting_headers and self._num_header_bytes > MAX_HEADER_BYTES and not self.transport.is_closing():
            self._reject(HEADERS_TOO_LARGE_STATUS)

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= MAX_HEADERS:
            self._stop_parser("too many headers")  # the parser creates objects per header
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._cancel_timer()
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MAX_HEADER_BYTES:
            self._stop_parser("the headers are too long")
        super().on_headers_complete()
        if self._is_upgrade:
            return
        length = self._num_body_bytes_left
        self._body_buffer = BodyBuffer(self.cycle, length) if 0 < length <= self.limits.max_body_bytes else None
        if self._body_buffer is not None:
            self.scope["state"][STATE_KEY] = self._body_buffer

    def _stop_parser(self, reason: str) -> NoReturn:
        self._headers_too_large = True
        raise ValueError(reason)

    def send_400_response(self, msg: str) -> None:
        if self._headers_too_large:
            self._reject(HEADERS_TOO_LARGE_STATUS)
        else:
            super().send_400_response(msg)

    def on_message_complete(self) -> None:
        self._num_header_bytes = 0
        super().on_message_complete()

    def take_body(self, body: bytes) -> None:
        if self._body_buffer is not None and self._body_buffer.is_receiving:
            self._body_buffer.append(body)
        else:
            super().take_body(body)

    def _start_header_timer(self) -> None:
        self._timer = self.loop.call_later(self.limits.body_timeout_s, self._reject, b"408 Request Timeout")

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _cancel_unread_timer(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _reject(self, status: bytes) -> None:
        self._cancel_timer()
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            self.transport.close()


def limited_protocol(limits: ServeLimits) -> type[SequentialProtocol]:
    """Return uvicorn's HTTP protocol class with these limits. Uvicorn makes the instances."""
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits})
