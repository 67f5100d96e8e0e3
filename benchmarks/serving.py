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

HERE = Path(__file__).resolve().parent
REAL = [sys.executable, "-m", "embodied_rm", "serve", "port=0"]
"""The command, with the model in the box."""
TOLERANCE = 1e-4
"""How far two of its answers about one film may differ: another batch adds up in another order."""
KNOWN = [sys.executable, str(HERE / "known_service.py")]
"""The one whose model's answer is known."""
PAGE = 4096


@dataclass(frozen=True)
class Running:
    """A service that runs."""

    url: str
    process: subprocess.Popen[str]

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return "127.0.0.1", int(self.url.rpartition(":")[2])

    def memory(self) -> int:
        """Bytes of it that are in memory."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * PAGE

    def descriptors(self) -> int:
        """Files and connections that it has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


@contextmanager
def running(command: list[str]) -> Iterator[Running]:
    """Start a service, and end it as SIGTERM does."""
    process = started(command)
    try:
        yield process
    finally:
        if process.process.poll() is None:
            process.process.send_signal(signal.SIGTERM)
        process.process.wait(60)


def started(command: list[str]) -> Running:
    """A service that listens."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment())
    assert process.stdout is not None
    for line in process.stdout:
        found = re.search(r"serving at (http://\S+?);?\s", line)
        if found:
            return Running(found[1].rstrip(";"), process)
    raise RuntimeError(f"{' '.join(command)} ended before it listened")


def environment() -> dict[str, str]:
    """That of this process, with the benchmarks where they can be imported."""
    path = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path}


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
