"""Memory of all requests: their bodies, including those still arriving, and their decoded images."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from embodied_rm.serve.request_errors import overload_error
from embodied_rm.serve.service_config import ServeLimits

GrowTo = Callable[[int], None]
"""Extends the memory of one request to a number of bytes. Raises `RequestError` if the budget is exhausted."""


class MemoryBudget:
    """Counts the bytes of all requests. Used from one thread only."""

    def __init__(self, limits: ServeLimits) -> None:
        self._limits = limits
        self.reserved_bytes = 0

    @contextmanager
    def reserve(self) -> Iterator[GrowTo]:
        """Yield the function that extends the memory of one request. The end releases it."""
        reserved_bytes = 0

        def grow_to(num_bytes: int) -> None:
            nonlocal reserved_bytes
            added_bytes = max(num_bytes - reserved_bytes, 0)
            if added_bytes and self.reserved_bytes + added_bytes > self._limits.max_queue_bytes:
                raise overload_error("the queued requests have reached the size limit")
            self.reserved_bytes += added_bytes
            reserved_bytes += added_bytes

        try:
            yield grow_to
        finally:
            self.reserved_bytes -= reserved_bytes
