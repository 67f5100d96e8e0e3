"""Runs services in separate processes and measures their resources. Used by the serve_*.py benchmarks."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cli_process import CLI_COMMAND

BENCHMARKS_DIR = Path(__file__).resolve().parent
SERVE_COMMAND = [*CLI_COMMAND, "serve", "port=0"]
"""Command of a service with the bundled model."""
PROGRESS_TOLERANCE = 1e-4
"""Tolerance between two predictions for one clip: the batch size changes the order of summation."""
HASH_SERVICE_COMMAND = [sys.executable, str(BENCHMARKS_DIR / "known_service.py")]
"""Command of a service with the hash model."""
MEMORY_PAGE_BYTES = 4096


@dataclass(frozen=True)
class RunningService:
    """A service process that listens."""

    url: str
    process: subprocess.Popen[str]

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return "127.0.0.1", int(self.url.rpartition(":")[2])

    def memory_bytes(self) -> int:
        """Return the resident memory, in bytes."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * MEMORY_PAGE_BYTES

    def num_descriptors(self) -> int:
        """Return the number of open files and connections."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


@contextmanager
def run_service(command: list[str]) -> Iterator[RunningService]:
    """Start a service, and stop it with SIGTERM at the end."""
    service = start_service(command)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.process.send_signal(signal.SIGTERM)
        service.process.wait(180)


def start_service(command: list[str]) -> RunningService:
    """Start a service and wait until it listens."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=subprocess_env()
    )
    assert process.stdout is not None
    for line in process.stdout:
        match = re.search(r"serving at (http://\S+?);?\s", line)
        if match:
            return RunningService(match[1].rstrip(";"), process)
    raise RuntimeError(f"{' '.join(command)} ended before it listened")


def subprocess_env() -> dict[str, str]:
    """Return the environment of this process, with the benchmarks on the Python path."""
    path = os.pathsep.join([str(BENCHMARKS_DIR), str(BENCHMARKS_DIR.parent), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path}


def free_port() -> int:
    """Return a port that is not in use."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
