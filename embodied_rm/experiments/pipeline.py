"""Run several commands inside one run folder, one after the other; finished ones are skipped."""

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from embodied_rm.command import Command
from embodied_rm.open_run import open_run
from embodied_rm.run_folder import Reporter, RunFolder

SECONDS_FILE = "seconds.json"  # time per phase, in the run folder


@dataclass
class Pipeline:
    """The phases of one run and their times."""

    run: RunFolder
    reporter: Reporter

    @property
    def seconds_by_phase(self) -> dict[str, float]:
        """Phase -> time, s, including interrupted sessions unless they were killed."""
        return self.run.read_json(SECONDS_FILE) if (self.run.path / SECONDS_FILE).exists() else {}

    @property
    def total_seconds(self) -> float:
        """Total time of all phases, s."""
        return sum(self.seconds_by_phase.values())

    def run_command(self, phase: str, folder: str, command: Command, config: Any) -> dict[str, Any]:
        """Run a command in `<run>/<folder>`, unless it is finished there; return its metrics."""
        with self.time_phase(phase):
            command_run = open_run(phase, config, self.run.path / folder, resume=True)
            if not command_run.finished:
                command.main(config, command_run, self.reporter)
        return command_run.read_json("metrics.json")

    @contextmanager
    def time_phase(self, phase: str) -> Iterator[None]:
        """Add the time of the context to a phase."""
        start_s = time.monotonic()
        try:
            yield
        finally:
            seconds = self.seconds_by_phase
            self.run.write_json(SECONDS_FILE, {**seconds, phase: seconds.get(phase, 0.0) + time.monotonic() - start_s})


def peak_memory_gib() -> float:
    """Return the peak memory of this process plus that of its largest finished child, GiB."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(resource.getrusage(kind).ru_maxrss for kind in kinds) / 2**20  # from KiB
