"""What a service does when nobody asks: it gives memory back that it does not need.

A burst of large requests leaves free memory in pieces, which the allocator keeps. Without this nobody could tell them
from a leak.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import time

IDLE_WINDOW_S = 1.0
"""Seconds that a rest lasts, at least."""
MAX_IDLE_CPU_S = 0.02
"""Seconds of the processor's time in a rest, from which it is none."""


async def trim_when_idle() -> None:
    """Give free memory back in every rest that follows some work. Ends by being cancelled; does nothing where the C
    library cannot do it."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    last_cpu_s = trimmed_cpu_s = time.process_time()
    while malloc_trim is not None:
        await asyncio.sleep(IDLE_WINDOW_S)
        cpu_s = time.process_time()
        if cpu_s - last_cpu_s < MAX_IDLE_CPU_S < cpu_s - trimmed_cpu_s:
            gc.collect()
            await asyncio.to_thread(malloc_trim, 0)
            trimmed_cpu_s = time.process_time()
        last_cpu_s = cpu_s
