"""The processors, and who runs where: of consequence where one thread waits for the others many times a millisecond."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

INITIAL_CPUS = os.sched_getaffinity(0)
"""Those of this process, before any library binds a thread."""
SMALL_CPU_COUNT = 2
"""Processors, of which none can be spared."""
THREAD_COUNT_VARIABLE = "OMP_NUM_THREADS"
BINDING_VARIABLES = {"OMP_PROC_BIND": "spread", "OMP_PLACES": "cores"}


def bind_threads_to_cores(environ: MutableMapping[str, str]) -> None:
    """Have the threads of a network stay each on its own processor; before torch is imported.

    Where they float, two of them now and then share a processor for a few milliseconds while another one is idle: a
    hundredth of all batches was measured to take three times as long. Where somebody says how many there are, other
    processes have the others, and they float.
    """
    if THREAD_COUNT_VARIABLE not in environ:
        for name, value in BINDING_VARIABLES.items():
            environ.setdefault(name, value)


def unpin_current_thread() -> None:
    """Have this thread run wherever there is room, and those that it starts from now on; of two processors, one is the
    network's other thread's, and it had better stay where it is."""
    if len(INITIAL_CPUS) > SMALL_CPU_COUNT:
        os.sched_setaffinity(0, INITIAL_CPUS)
