"""CPU affinity of threads, for the low latency of the reward service."""

import os
from collections.abc import MutableMapping

INITIAL_CPUS = os.sched_getaffinity(0)  # the CPUs of this process, before any library binds a thread
SMALL_CPU_COUNT = 2  # with at most this many CPUs, all of them belong to the network's threads
THREAD_COUNT_VARIABLE = "OMP_NUM_THREADS"
BINDING_VARIABLES = {"OMP_PROC_BIND": "spread", "OMP_PLACES": "cores"}


def bind_threads_to_cores(environ: MutableMapping[str, str]) -> None:
    """Bind each OpenMP thread to its own core. Must run before torch is imported.

    Unbound threads sometimes share a core for a few milliseconds while another core is idle: 1 % of batches took three
    times as long. If OMP_NUM_THREADS is set, other processes use the other cores, and threads stay unbound.
    """
    if THREAD_COUNT_VARIABLE not in environ:
        for name, value in BINDING_VARIABLES.items():
            environ.setdefault(name, value)


def unpin_current_thread() -> None:
    """Let this thread, and those that it starts later, run on all cores.

    With two cores it stays bound: the other core belongs to the second thread of the network.
    """
    if len(INITIAL_CPUS) > SMALL_CPU_COUNT:
        os.sched_setaffinity(0, INITIAL_CPUS)
