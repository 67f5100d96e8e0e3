"""Services in processes of their own, and what they use; for the serve_*.py beside this."""

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

BENCHMARKS_DIR = Path(__file__).resolve().parent
SERVE_COMMAND = [sys.executable, "-m", "embodied_rm", "serve", "port=0"]
"""The command, with the bundled model."""
PROGRESS_TOLERANCE = 1e-4
"""How far two of its answers about one video may differ: another batch adds up in another order."""
HASH_SERVICE_COMMAND = [sys.executable, str(BENCHMARKS_DIR / "known_service.py")]
"""The one whose model's answer is known."""
MEMORY_PAGE_BYTES = 4096


@dataclass(frozen=True)
class RunningService:
    """A service that runs."""

    url: str
    process: subprocess.Popen[str]

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return "127.0.0.1", int(self.url.rpartition(":")[2])

    def memory_bytes(self) -> int:
        """Bytes of it that are in memory."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * MEMORY_PAGE_BYTES

    def num_descriptors(self) -> int:
        """Files and connections that it has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


@contextmanager
def run_service(command: list[str]) -> Iterator[RunningService]:
    """Start a service, and end it as SIGTERM does."""
    service = start_service(command)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.process.send_signal(signal.SIGTERM)
        service.process.wait(60)


def start_service(command: list[str]) -> RunningService:
    """A service that listens."""
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
    """That of this process, with the benchmarks where they can be imported."""
    path = os.pathsep.join([str(BENCHMARKS_DIR), str(BENCHMARKS_DIR.parent), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path}


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
