"""`embodied-rm bench experts`: every task's expert, on both arms and both physics engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from embodied_rm.cli.benchmarks import machine, put_section
from embodied_rm.cli.command import Command
from embodied_rm.errors import UserError
from embodied_rm.run import Reporter, RunFolder
from sim.bench.arms import every_arm
from sim.bench.experts import expert_rate

BACKENDS = ("batch", "warp")
Rates = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class BenchExpertsConfig:
    """Who plays how often."""

    tasks: tuple[str, ...] = ()
    episodes: int = 100
    warp_episodes: int = 32
    page: Path | None = None

    def __post_init__(self) -> None:
        every_arm(self.tasks)
        for name in ("episodes", "warp_episodes"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be >= 1, got {getattr(self, name)}")


def start(config: BenchExpertsConfig, run: RunFolder, reporter: Reporter) -> None:
    """Play; leave the rates and perhaps a section of a page."""
    cells = every_arm(config.tasks)
    rates = dict(reporter.track(measured(config, cells), "experts", total=len(cells)))
    for (task, robot), row in rates.items():
        reporter.table(f"{task}, {robot}", dict(row))
    told = [{"task": task, "robot": robot, **row} for (task, robot), row in rates.items()]
    run.write_json("metrics.json", {"bench": {"machine": machine(), "experts": told}})
    if config.page is not None:
        put_section(config.page, "bench experts", section(config, rates))


def measured(config: BenchExpertsConfig, cells: list[tuple[str, str]]) -> Iterator[tuple[tuple[str, str], Rates]]:
    """Cell by cell, the success rate on each engine; the same first episodes on both."""
    episodes = {"batch": config.episodes, "warp": config.warp_episodes}
    for task, robot in cells:
        rates = {backend: expert_rate(task, robot, backend, episodes[backend]) for backend in BACKENDS}
        yield (task, robot), {**rates, "batch_same_episodes": expert_rate(task, robot, "batch", episodes["warp"])}


def section(config: BenchExpertsConfig, rates: Mapping[tuple[str, str], Rates]) -> str:
    """The results as Markdown."""
    lines = [
        "## Experts",
        "",
        "`embodied-rm bench experts`: success rate of the scripted expert, without noise, at full pace. On the "
        f"batch backend {config.episodes} seeded episodes; on Warp's (device cpu) the first "
        f"{config.warp_episodes} of them, beside the batch backend's rate in those.",
        "",
        "| task | arm | batch | batch, the same episodes | warp |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {task} | {robot} | {row['batch']:.2f} | {row['batch_same_episodes']:.2f} | {row['warp']:.2f} |"
        for (task, robot), row in rates.items()
    ]
    return "\n".join(lines)


COMMAND = Command(schema=BenchExpertsConfig, start=start)
