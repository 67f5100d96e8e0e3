"""`embodied-rm adapt`: one annotated demonstration becomes a reward model."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from embodied_rm.adapt import AdaptConfig, adapt
from embodied_rm.cli.command import Command, narrow
from embodied_rm.cli.recordings import recordings
from embodied_rm.cli.trial import opened_net
from embodied_rm.data.names import Names
from embodied_rm.data.source import row_of
from embodied_rm.run import Reporter, RunFolder


@dataclass(frozen=True, kw_only=True)
class AdaptCommand(AdaptConfig):
    """Adaptation to a stored recording."""

    data: Path
    instruction: str | None = None
    episode: int = 0
    start: Path | None = None
    names: Names = field(default_factory=Names)


def start(config: AdaptCommand, run: RunFolder, reporter: Reporter) -> None:
    """Adapt, and leave checkpoint and metrics in the run folder."""
    started = time.monotonic()
    begin, facts = (None, None) if config.start is None else opened_net(config.start)
    source = recordings(config.data, reporter, config.instruction, config.names)
    row = row_of(source, config.episode)
    size = config.image_size if begin is None else begin.config.encoder.image_size
    demonstration = source.episode(row, size=size)
    net = adapt(demonstration, narrow(config, AdaptConfig), run, reporter, begin, facts=facts)
    numbers = {
        "frames": len(demonstration),
        "steps": len(demonstration.steps),
        "parameters": sum(parameter.numel() for parameter in net.parameters()),
        "seconds": time.monotonic() - started,
    }
    run.write_json("metrics.json", {"adapt": numbers})


COMMAND = Command(schema=AdaptCommand, start=start)
