"""Receives a request body directly into its final buffer.

uvicorn passes bodies on in chunks that the application joins: four copies of every byte. For frames of 64 environments
that took 1 ms, a sixth of the inference time.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

STATE_KEY = "body_buffer"
"""Key of the buffer in the state of a request."""


class BodyBuffer:
    """The body of a request with known length. Nothing is allocated before `receive`."""

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
