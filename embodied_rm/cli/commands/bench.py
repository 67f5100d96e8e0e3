"""`embodied-rm bench`: how fast it is, as ratios of one run on one machine."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from embodied_rm.cli.command import Command
from embodied_rm.errors import UserError, lookup
from embodied_rm.report.plot import plot_scaling
from embodied_rm.run import Reporter, RunFolder
from sim.bench.compare import ROUNDS, contenders, ratios, scaling
from sim.bench.rollouts import Rollout


@dataclass(frozen=True, kw_only=True)
class BenchConfig:
    """What is measured and how long."""

    what: str = "sim"
    task: str = "lift_cube"
    num_envs: int = 64
    views: tuple[str, ...] = ("front", "wrist")
    image_size: int = 64
    steps: int = 60
    counts: tuple[int, ...] = (1, 4, 16, 64, 256, 1024)
    env_steps: int = 4000
    page: Path | None = None

    def __post_init__(self) -> None:
        lookup({"sim": "sim"}, self.what, "subject of a benchmark")
        for name in ("num_envs", "image_size", "steps", "env_steps"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be >= 1, got {getattr(self, name)}")
        if any(count < 1 for count in self.counts):
            raise UserError(f"counts must be >= 1, got {list(self.counts)}")


def start(config: BenchConfig, run: RunFolder, reporter: Reporter) -> None:
    """Measure; leave numbers, a plot and perhaps a page."""
    rollout = Rollout(task=config.task, num_envs=config.num_envs, views=config.views, image_size=config.image_size)
    reporter.table("bench sim", {"machine": machine(), **vars(rollout)})
    speeds = list(reporter.track(contenders(rollout, config.steps), "compare", total=3 * ROUNDS))
    compared = ratios(speeds)
    reporter.table("environment steps per second, all views drawn", compared)
    points = list(reporter.track(scaling(rollout, config.counts, config.env_steps), "scale", total=len(config.counts)))
    rows = [
        {
            "num_envs": count,
            "env_steps_per_s": drawn.env_steps_per_s,
            "physics_env_steps_per_s": plain.env_steps_per_s,
            "memory_mib": drawn.memory_mib,
        }
        for count, drawn, plain in points
    ]
    for row in rows:
        reporter.table(f"{row['num_envs']} environments", row)
    metrics = {"machine": machine(), "rollout": vars(rollout), "compared": compared, "scaling": rows}
    run.write_json("metrics.json", {"bench": metrics})
    if rows:
        plot_scaling(run.file("scaling.png"), rows)
    if config.page is not None:
        config.page.write_text(page(metrics))


def machine() -> str:
    """The processor and how much of it there is."""
    return f"{processor()}, {len(os.sched_getaffinity(0))} cores, no GPU"


def processor() -> str:
    """The name of the processor."""
    info = Path("/proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def page(metrics: dict[str, Any]) -> str:
    """The results as Markdown."""
    compared, rollout = metrics["compared"], metrics["rollout"]
    names = {
        "ours": "`TabletopVecEnv`",
        "async_lean": "`AsyncVectorEnv` with `mujoco.Renderer`, shadows and antialiasing off",
        "async_as_it_comes": "`AsyncVectorEnv` with `mujoco.Renderer` as it comes",
    }
    lines = [
        "# Benchmarks",
        "",
        f"{date.today().isoformat()}; {metrics['machine']}. Ratios are of one run; medians of {ROUNDS}.",
        "",
        f"`{rollout['task']}`, {rollout['num_envs']} environments, views {', '.join(rollout['views'])} at "
        f"{rollout['image_size']}x{rollout['image_size']} after every step (`embodied-rm bench sim`):",
        "",
        "| environments | steps per second | ours is faster |",
        "|---|---|---|",
    ]
    for name, said in names.items():
        ratio = "" if name == "ours" else f"{compared[f'ours_to_{name}']:.2f} times"
        lines.append(f"| {said} | {compared[f'{name}_env_steps_per_s']:,.0f} | {ratio} |")
    lines += ["", "| environments | steps/s, drawn | steps/s, physics alone | memory, MiB |", "|---|---|---|---|"]
    lines += [
        f"| {row['num_envs']} | {row['env_steps_per_s']:,.0f} | {row['physics_env_steps_per_s']:,.0f} "
        f"| {row['memory_mib']:,.0f} |"
        for row in metrics["scaling"]
    ]
    lines += ["", "NVIDIA GPU: not measured.", ""]
    return "\n".join(lines)


COMMAND = Command(schema=BenchConfig, start=start)
