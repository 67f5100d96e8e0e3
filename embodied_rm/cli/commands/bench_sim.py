"""`embodied-rm bench sim`: how fast the simulator is, as ratios of one run on one machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embodied_rm.cli.benchmarks import machine, put_section
from embodied_rm.cli.command import Command, narrow
from embodied_rm.errors import UserError
from embodied_rm.report.plot import plot_scaling
from embodied_rm.run import Reporter, RunFolder
from sim.bench.compare import ROUNDS, contenders, ratios, scaling
from sim.bench.rollouts import Rollout

PLOT = "scaling.png"


@dataclass(frozen=True, kw_only=True)
class BenchSimConfig(Rollout):
    """What is measured and how long."""

    steps: int = 60
    counts: tuple[int, ...] = (1, 4, 16, 64, 256, 1024)
    env_steps: int = 10000
    page: Path | None = None

    def __post_init__(self) -> None:
        for name in ("num_envs", "image_size", "steps", "env_steps"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be >= 1, got {getattr(self, name)}")
        if any(count < 1 for count in self.counts):
            raise UserError(f"counts must be >= 1, got {list(self.counts)}")
        if not self.counts:
            raise UserError("counts must name at least one number of environments")


def start(config: BenchSimConfig, run: RunFolder, reporter: Reporter) -> None:
    """Measure; leave numbers, a plot and perhaps a page."""
    rollout = narrow(config, Rollout)
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
    plot_scaling(run.file(PLOT), rows)
    if config.page is not None:
        put_section(config.page, "bench sim", section(metrics))
        plot_scaling(config.page.with_name(PLOT), rows)


def section(metrics: dict[str, Any]) -> str:
    """The results as Markdown."""
    compared, rollout = metrics["compared"], metrics["rollout"]
    names = {
        "ours": "`TabletopVecEnv`",
        "async_lean": "`AsyncVectorEnv` with `mujoco.Renderer`, shadows and antialiasing off",
        "async_as_it_comes": "`AsyncVectorEnv` with `mujoco.Renderer` as it comes",
    }
    lines = [
        "## Simulator",
        "",
        f"`embodied-rm bench sim`: `{rollout['task']}`, {rollout['num_envs']} environments, views "
        f"{', '.join(rollout['views'])} at {rollout['image_size']}x{rollout['image_size']} after every step; medians "
        f"of {ROUNDS} in turn, each in a process of its own.",
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
    lines += ["", "![Steps per second and memory over the number of environments](scaling.png)"]
    return "\n".join(lines)


COMMAND = Command(schema=BenchSimConfig, start=start)
