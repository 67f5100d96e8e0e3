"""A body on its way in: written to where it will lie, as it arrives.

uvicorn hands bodies on in pieces, which are put together behind it: four copies of every byte. Of frames of 64
environments that was a millisecond, a sixth of the time in which they are judged.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

STATE_KEY = "body_buffer"
"""Under which the protocol leaves it in the state of a request."""


class BodyBuffer:
    """The body of a request whose length is told. Nothing is allocated for it before it is `accept`ed."""

    def __init__(self, cycle: Any, num_bytes: int) -> None:
        """`cycle`: uvicorn's, in which the first pieces are."""
        self.num_bytes = num_bytes
        self._cycle, self._num_received = cycle, 0
        self._buffer: memoryview | None = None
        self._completed: asyncio.Future[None] | None = None

    async def receive(self) -> memoryview:
        """Make room for it and wait until it is there. Raises `ConnectionError` where the sender leaves before."""
        buffer = self._buffer = np.empty(self.num_bytes, np.uint8).data
        cycle, self._cycle = self._cycle, None  # which holds this: in a circle both would outlive the request
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
        """Whether pieces are to be written here."""
        return self._buffer is not None

    def append(self, chunk: bytes) -> bool:
        """The next piece; whether it was the last. The protocol's parser lets no more through than was told."""
        assert self._buffer is not None
        end = self._num_received + len(chunk)
        self._buffer[self._num_received : end] = chunk
        self._num_received = end
        if end == self.num_bytes and self._completed is not None and not self._completed.done():
            self._completed.set_result(None)
        return end == self.num_bytes

    def abort(self) -> None:
        """The sender has left."""
        if self._completed is not None and not self._completed.done():
            self._completed.set_exception(ConnectionError("the connection broke"))
