"""Several commands inside one run folder, one after the other, each timed; what is finished is not done again."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from embodied_rm.cli.command import Command
from embodied_rm.cli.runs import open_run
from embodied_rm.run import Reporter, RunFolder

SECONDS = "seconds.json"
"""Time spent on each stage, in the run folder."""


@dataclass
class Stages:
    """The stages of one run."""

    run: RunFolder
    reporter: Reporter

    @property
    def seconds(self) -> dict[str, float]:
        """Stage -> time spent on it, interrupted sessions included unless they were killed."""
        return self.run.read_json(SECONDS) if (self.run.path / SECONDS).exists() else {}

    @property
    def total(self) -> float:
        """Time spent on all of them."""
        return sum(self.seconds.values())

    def command(self, stage: str, folder: str, command: Command, config: Any) -> dict[str, Any]:
        """Run a command in `<run>/<folder>` unless it has finished there; its metrics."""
        with self.timed(stage):
            inner = open_run(stage, config, self.run.path / folder, resume=True)
            if not inner.finished:
                command.start(config, inner, self.reporter)
        return inner.read_json("metrics.json")

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the time inside to a stage."""
        started = time.monotonic()
        try:
            yield
        finally:
            known = self.seconds
            self.run.write_json(SECONDS, {**known, stage: known.get(stage, 0.0) + time.monotonic() - started})


def peak_memory_gib() -> float:
    """Most memory that this process ever held, and the largest of its finished children, together."""
    kib = sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return kib / 2**20
