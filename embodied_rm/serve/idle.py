"""What a service does when nobody asks: it gives memory back that it does not need.

A burst of large requests leaves free memory in pieces, which the allocator keeps. Without this nobody could tell them
from a leak.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import time

REST = 1.0
"""Seconds that a rest lasts, at least."""
BUSY = 0.02
"""Seconds of the processor's time in a rest, from which it is none."""


async def tidy_when_idle() -> None:
    """Give free memory back in every rest that follows some work. Ends by being cancelled; does nothing where the C
    library cannot do it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    before = tidied = time.process_time()
    while trim is not None:
        await asyncio.sleep(REST)
        now = time.process_time()
        if now - before < BUSY < now - tidied:
            gc.collect()
            await asyncio.to_thread(trim, 0)
            tidied = time.process_time()
        before = now
