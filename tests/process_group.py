"""Run a command in a group of processes, as torchrun does.

The processes are forked from one that has imported the commands: starting ten of them takes less time than one import.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import NamedTuple

import torch

from embodied_rm.cli.main import main

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["process_group", "forked_program", "embodied_rm.cli.commands.train", "embodied_rm.tabletop.refine_policy"]
)
TIMEOUT_S = 280


class Result(NamedTuple):
    """What a command left."""

    returncode: int
    """That of the first process that failed; else 0."""
    output: str
    """Of all processes."""


def start(words: Sequence[str], processes: int, log: Path) -> list[multiprocessing.context.ForkServerProcess]:
    """Start a command, given by its words, in a group of processes that write to <log>.<rank>."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log.parent.mkdir(parents=True, exist_ok=True)
    group = [CONTEXT.Process(target=run_rank, args=(rank, processes, port, words, log)) for rank in range(processes)]
    for process in group:
        process.start()
    return group


def run(words: Sequence[str], processes: int, log: Path) -> Result:
    """Run a command in a group of processes. When one fails, the others are killed."""
    running = start(words, processes, log)
    codes = []
    while running:
        ended = wait([process.sentinel for process in running], timeout=TIMEOUT_S)
        assert ended, f"the command {' '.join(words)} takes longer than {TIMEOUT_S} s"
        codes += [process.exitcode for process in running if process.sentinel in ended]
        running = [process for process in running if process.sentinel not in ended]
        if any(codes):
            kill(running)
            break
    logs = sorted(log.parent.glob(f"{log.name}.*"))
    return Result(next((code for code in codes if code), 0), "\n".join(path.read_text() for path in logs))


def kill(group: Sequence[multiprocessing.context.ForkServerProcess]) -> None:
    """Kill processes at once, as a power failure would."""
    for process in group:
        process.kill()
    for process in group:
        process.join()


def run_rank(rank: int, world_size: int, port: int, words: Sequence[str], log: Path) -> None:
    """Run a command as one process of a group, with the variables that torchrun sets."""
    with Path(f"{log}.{rank}").open("w") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    if world_size > 1:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    sys.exit(main(list(words)))
