"""The processors, and who runs where: of consequence where one thread waits for the others many times a millisecond."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

ALL = os.sched_getaffinity(0)
"""Those of this process, before any library binds a thread."""
FEW = 2
"""Processors, of which none can be spared."""
COUNT = "OMP_NUM_THREADS"
BOUND = {"OMP_PROC_BIND": "spread", "OMP_PLACES": "cores"}


def bind_each(environment: MutableMapping[str, str]) -> None:
    """Have the threads of a network stay each on its own processor; before torch is imported.

    Where they float, two of them now and then share a processor for a few milliseconds while another one is idle: a
    hundredth of all batches was measured to take three times as long. Where somebody says how many there are, other
    processes have the others, and they float.
    """
    if COUNT not in environment:
        for name, value in BOUND.items():
            environment.setdefault(name, value)


def float_again() -> None:
    """Have this thread run wherever there is room, and those that it starts from now on; of two processors, one is the
    network's other thread's, and it had better stay where it is."""
    if len(ALL) > FEW:
        os.sched_setaffinity(0, ALL)
