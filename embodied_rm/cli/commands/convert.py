"""`embodied-rm convert`: episodes of any layout become a LeRobot v3.0 dataset."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from embodied_rm.cli.command import Command
from embodied_rm.cli.places import DATASET
from embodied_rm.cli.recordings import recordings, tell
from embodied_rm.data.convert import convert
from embodied_rm.data.faults import named
from embodied_rm.data.lerobot.read import LeRobotDataset
from embodied_rm.data.names import Names
from embodied_rm.errors import UserError
from embodied_rm.run import Reporter, RunFolder


@dataclass(frozen=True, kw_only=True)
class ConvertCommand:
    """What is converted."""

    data: Path
    instruction: str | None = None
    size: tuple[int, ...] | None = None
    robot_type: str = "unknown"
    names: Names = field(default_factory=Names)

    def __post_init__(self) -> None:
        if self.size is not None and (len(self.size) != 2 or min(self.size) < 2 or any(n % 2 for n in self.size)):
            raise UserError(f"size must be [height, width], both even and >= 2, got {list(self.size)}")


def start(config: ConvertCommand, run: RunFolder, reporter: Reporter) -> None:
    """Convert, open what was written, and leave counts in the run folder."""
    started = time.monotonic()
    source = recordings(config.data, reporter, config.instruction, config.names)
    size = None if config.size is None else (config.size[0], config.size[1])
    target = run.path / DATASET
    faults = convert(source, target, reporter, size=size, robot_type=config.robot_type)
    tell(faults, reporter)
    written = LeRobotDataset(target)
    numbers = {
        "episodes": len(written),
        "frames": sum(meta.length for meta in written.meta),
        "left_out": [*named(source.faults), *named(faults)],
        "seconds": time.monotonic() - started,
    }
    reporter.table("converted", {**numbers, "views": written.views, "left_out": len(numbers["left_out"])})
    run.write_json("metrics.json", {"convert": numbers})


COMMAND = Command(schema=ConvertCommand, start=start)
