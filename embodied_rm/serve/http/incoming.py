"""A body on its way in: written to where it will lie, as it arrives.

uvicorn hands bodies on in pieces, which are put together behind it: four copies of every byte. Of frames of 64
environments that was a millisecond, a sixth of the time in which they are judged.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

KEY = "incoming"
"""Under which the protocol leaves it in the state of a request."""


class Incoming:
    """The body of a request whose length is told. Nothing is allocated for it before it is `accept`ed."""

    def __init__(self, cycle: Any, length: int) -> None:
        """`cycle`: uvicorn's, in which the first pieces are."""
        self.length = length
        self._cycle, self._filled = cycle, 0
        self._into: memoryview | None = None
        self._done: asyncio.Future[None] | None = None

    async def accept(self) -> memoryview:
        """Make room for it and wait until it is there. Raises `ConnectionError` where the sender leaves before."""
        into = self._into = np.empty(self.length, np.uint8).data
        cycle, self._cycle = self._cycle, None  # which holds this: in a circle both would outlive the request
        first, cycle.body = cycle.body, b""
        cycle.flow.resume_reading()
        try:
            if not self.write(first):
                self._done = asyncio.get_running_loop().create_future()
                await self._done
        finally:
            self._into = None
        return into

    @property
    def accepted(self) -> bool:
        """Whether pieces are to be written here."""
        return self._into is not None

    def write(self, piece: bytes) -> bool:
        """The next piece; whether it was the last. The protocol's parser lets no more through than was told."""
        assert self._into is not None
        end = self._filled + len(piece)
        self._into[self._filled : end] = piece
        self._filled = end
        if end == self.length and self._done is not None and not self._done.done():
            self._done.set_result(None)
        return end == self.length

    def break_off(self) -> None:
        """The sender has left."""
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionError("the connection broke"))
