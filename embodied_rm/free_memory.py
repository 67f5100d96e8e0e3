"""How much memory this process may still take: that of the machine, or of its container."""

import contextlib
import math
import os
from pathlib import Path
from typing import NamedTuple


class Cgroup(NamedTuple):
    """Files in which a version of cgroups tells the memory of a container, in bytes."""

    limit: str
    used: str
    statistics: str
    cache_key: str
    """Entry of the statistics: memory that counts as used, and that the system can free."""


CGROUP_FOLDER = "/sys/fs/cgroup"
CGROUPS = (
    Cgroup(
        f"{CGROUP_FOLDER}/memory.max",
        f"{CGROUP_FOLDER}/memory.current",
        f"{CGROUP_FOLDER}/memory.stat",
        "inactive_file",
    ),
    Cgroup(
        f"{CGROUP_FOLDER}/memory/memory.limit_in_bytes",
        f"{CGROUP_FOLDER}/memory/memory.usage_in_bytes",
        f"{CGROUP_FOLDER}/memory/memory.stat",
        "total_inactive_file",
    ),
)


def free_memory_bytes() -> int:
    """Return the memory that is free, or that the system can free; all memory where it does not tell."""
    return int(min(_free_machine_bytes(), *map(_free_container_bytes, CGROUPS)))


def _free_machine_bytes() -> int:
    with contextlib.suppress(FileNotFoundError), Path("/proc/meminfo").open(encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _free_container_bytes(files: Cgroup) -> float:
    """Return what a container may still take: /proc/meminfo is that of its host. Infinity without a limit."""
    try:
        limit, used, statistics = (Path(path).read_text(encoding="ascii") for path in files[:3])
        cached = dict(line.split() for line in statistics.splitlines())[files.cache_key]
        return max(0, int(limit) - int(used) + int(cached))
    except (OSError, KeyError, ValueError):  # another version of cgroups, or the limit is "max"
        return math.inf
