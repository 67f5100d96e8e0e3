"""Run the program `embodied-rm` in a process of its own, which starts in no time.

It is forked from a process that has imported the commands. A new interpreter would import torch first, which takes
longer than the tiny runs of the tests.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.util import Finalize
from pathlib import Path

import torch
from process_group import CONTEXT

from embodied_rm.__main__ import run

TIMEOUT_S = 200


class ForkedProgram:
    """A running program, whose output goes to two files."""

    def __init__(self, words: Sequence[str], folder: Path, *, max_file_bytes: int | None = None) -> None:
        """Start it with the words of a command line. `folder` gets the files of its output."""
        folder.mkdir(parents=True, exist_ok=True)
        self._paths = (folder / "stdout.txt", folder / "stderr.txt")
        for path in self._paths:
            path.touch()
        self.process = CONTEXT.Process(target=run_forked, args=(list(words), self._paths, max_file_bytes))
        self.process.start()
        # When a test fails while the program runs, the end of the tests would wait for it.
        Finalize(None, self.process.kill, exitpriority=0)

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self.process.is_alive()

    @property
    def output(self) -> str:
        """What it has printed."""
        return self._paths[0].read_text()

    @property
    def errors(self) -> str:
        """What it has printed to stderr."""
        return self._paths[1].read_text()

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds, while the program runs."""
        while not condition():
            assert self.is_running, self.errors
            time.sleep(0.01)

    def wait(self) -> int:
        """Wait for its end and return its exit code, which is negative after a signal."""
        self.process.join(TIMEOUT_S)
        assert self.process.exitcode is not None, f"it takes longer than {TIMEOUT_S} s"
        return self.process.exitcode


def run_forked(words: list[str], paths: tuple[Path, Path], max_file_bytes: int | None) -> None:
    """Run the program as a shell would start it: as the leader of a session, with the usual handlers of signals."""
    os.setsid()
    for descriptor, path in zip((1, 2), paths, strict=True):
        with path.open("w") as file:
            os.dup2(file.fileno(), descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if max_file_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (max_file_bytes, max_file_bytes))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # as on a full disk, writing then fails
    torch.set_num_threads(1)
    sys.argv = ["embodied-rm", *words]
    sys.exit(run())
