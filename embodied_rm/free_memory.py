"""How much memory this process may still take: that of the machine, or of its container."""

import contextlib
import math
import os
from pathlib import Path
from typing import NamedTuple


class Cgroup(NamedTuple):
    """Files in the folder of a group in which a version of cgroups tells its memory, in bytes."""

    controller: str  # name of the hierarchy in /proc/self/cgroup
    root: str  # folder of the group of all processes
    limit: str
    used: str
    statistics: str
    cache_key: str  # entry of the statistics: memory that counts as used, and that the system can free


MEMBERSHIP_FILE = "/proc/self/cgroup"
CGROUPS = (
    Cgroup("", "/sys/fs/cgroup", "memory.max", "memory.current", "memory.stat", "inactive_file"),
    Cgroup(
        "memory",
        "/sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "memory.stat",
        "total_inactive_file",
    ),
)


def free_memory_bytes() -> int:
    """Return the memory that is free, or that the system can free; all memory where it does not tell."""
    groups = [(folder, version) for version in CGROUPS for folder in _group_folders(version)]
    return int(min([_free_machine_bytes(), *(_free_group_bytes(*group) for group in groups)]))


def _free_machine_bytes() -> int:
    with contextlib.suppress(FileNotFoundError), Path("/proc/meminfo").open(encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _group_folders(version: Cgroup) -> list[Path]:
    """Return the folders of the groups of this process, from the innermost to that of all processes.

    A container often sees its own group as the outermost one; a job of a scheduler, or a service, is in an inner one.
    """
    inner = Path("/")
    with contextlib.suppress(OSError):
        for line in Path(MEMBERSHIP_FILE).read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if version.controller in controllers.split(",") and ".." not in Path(path).parts:
                inner = Path(path)
    return [Path(version.root, *group.parts[1:]) for group in (inner, *inner.parents)]


def _free_group_bytes(folder: Path, files: Cgroup) -> float:
    """Return what the processes of a group may still take; infinity without a limit."""
    try:
        names = (files.limit, files.used, files.statistics)
        limit, used, statistics = ((folder / name).read_text(encoding="ascii") for name in names)
        cached = dict(line.split() for line in statistics.splitlines())[files.cache_key]
        return max(0, int(limit) - int(used) + int(cached))
    except (OSError, KeyError, ValueError):  # another version of cgroups, or the limit is "max"
        return math.inf
