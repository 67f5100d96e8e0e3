"""Several commands inside one run folder, one after the other, each timed; what is finished is not done again."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from embodied_rm.command import Command
from embodied_rm.open_run import open_run
from embodied_rm.run_folder import Reporter, RunFolder

SECONDS_FILE = "seconds.json"
"""Time spent on each stage, in the run folder."""


@dataclass
class Pipeline:
    """The stages of one run."""

    run: RunFolder
    reporter: Reporter

    @property
    def seconds_by_stage(self) -> dict[str, float]:
        """Stage -> time spent on it, interrupted sessions included unless they were killed."""
        return self.run.read_json(SECONDS_FILE) if (self.run.path / SECONDS_FILE).exists() else {}

    @property
    def total_seconds(self) -> float:
        """Time spent on all of them."""
        return sum(self.seconds_by_stage.values())

    def run_command(self, stage: str, folder: str, command: Command, config: Any) -> dict[str, Any]:
        """Run a command in `<run>/<folder>` unless it has finished there; its metrics."""
        with self.time_stage(stage):
            stage_run = open_run(stage, config, self.run.path / folder, resume=True)
            if not stage_run.finished:
                command.main(config, stage_run, self.reporter)
        return stage_run.read_json("metrics.json")

    @contextmanager
    def time_stage(self, stage: str) -> Iterator[None]:
        """Add the time inside to a stage."""
        start_s = time.monotonic()
        try:
            yield
        finally:
            seconds = self.seconds_by_stage
            self.run.write_json(SECONDS_FILE, {**seconds, stage: seconds.get(stage, 0.0) + time.monotonic() - start_s})


def peak_memory_gib() -> float:
    """Most memory that this process ever held, and the largest of its finished children, together."""
    kib = sum(
        resource.getrusage(usage_kind).ru_maxrss for usage_kind in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return kib / 2**20
