"""Returns free memory to the operating system while the service is idle.

A burst of large requests leaves fragmented free memory, which the allocator keeps. Without trimming it
looks like a leak.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import time

IDLE_WINDOW_S = 1.0
"""Shortest idle period, in seconds."""
MAX_IDLE_CPU_S = 0.02
"""Largest CPU time within an idle period, in seconds."""


async def trim_when_idle() -> None:
    """Trim memory in every idle period that follows some work, until cancelled. Does nothing without `malloc_trim`."""
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
