"""`embodied-rm bench sim`: speed of the simulator, compared with Gymnasium's `AsyncVectorEnv`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embodied_rm.command import Command, to_base_config
from embodied_rm.errors import UserError
from embodied_rm.experiments.results_page import describe_machine, write_section
from embodied_rm.report.plot import plot_scaling
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_sim.bench.rollouts import RolloutConfig
from embodied_sim.bench.speed import NUM_ROUNDS, measure_scaling, measure_speeds, speed_ratios

PLOT_FILE = "scaling.png"


@dataclass(frozen=True, kw_only=True)
class BenchSimConfig(RolloutConfig):
    """Config of `bench sim`."""

    rollout_steps: int = 60
    num_envs_list: tuple[int, ...] = (1, 4, 16, 64, 256, 1024)
    env_steps: int = 10000
    results_page: Path | None = None

    def __post_init__(self) -> None:
        for name in ("num_envs", "image_size", "rollout_steps", "env_steps"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be >= 1, got {getattr(self, name)}")
        if any(count < 1 for count in self.num_envs_list):
            raise UserError(f"num_envs_list must be >= 1, got {list(self.num_envs_list)}")
        if not self.num_envs_list:
            raise UserError("num_envs_list must hold at least one number of environments")


def main(config: BenchSimConfig, run: RunFolder, reporter: Reporter) -> None:
    """Measure; write metrics, a plot and, if set, a section of the results page."""
    rollout = to_base_config(config, RolloutConfig)
    reporter.table("bench sim", {"machine": describe_machine(), **vars(rollout)})
    speeds = list(reporter.track(measure_speeds(rollout, config.rollout_steps), "compare", total=3 * NUM_ROUNDS))
    ratios = speed_ratios(speeds)
    reporter.table("environment steps per second, all views rendered", ratios)
    points = list(
        reporter.track(
            measure_scaling(rollout, config.num_envs_list, config.env_steps), "scale", total=len(config.num_envs_list)
        )
    )
    rows = [
        {
            "num_envs": count,
            "env_steps_per_s": rendered.env_steps_per_s,
            "physics_env_steps_per_s": physics_only.env_steps_per_s,
            "memory_mib": rendered.memory_mib,
        }
        for count, rendered, physics_only in points
    ]
    for row in rows:
        reporter.table(f"{row['num_envs']} environments", row)
    metrics = {"machine": describe_machine(), "rollout": vars(rollout), "compared": ratios, "scaling": rows}
    run.write_json("metrics.json", {"bench": metrics})
    plot_scaling(run.file_path(PLOT_FILE), rows)
    if config.results_page is not None:
        write_section(config.results_page, "bench sim", markdown_section(metrics))
        plot_scaling(config.results_page.with_name(PLOT_FILE), rows)


def markdown_section(metrics: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    speed_ratios, rollout = metrics["compared"], metrics["rollout"]
    labels = {
        "ours": "`TabletopVecEnv`",
        "async_fast": "`AsyncVectorEnv` with `mujoco.Renderer`, shadows and antialiasing off",
        "async_default": "`AsyncVectorEnv` with `mujoco.Renderer`, default settings",
    }
    lines = [
        "## Simulator",
        "",
        f"`embodied-rm bench sim`: `{rollout['task']}`, {rollout['num_envs']} environments, views "
        f"{', '.join(rollout['views'])} at {rollout['image_size']}x{rollout['image_size']} after every step; medians "
        f"of {NUM_ROUNDS} interleaved runs in separate processes.",
        "",
        "| environments | steps per second | speedup of ours |",
        "|---|---|---|",
    ]
    for name, label in labels.items():
        ratio = "" if name == "ours" else f"{speed_ratios[f'ours_to_{name}']:.2f}"
        lines.append(f"| {label} | {speed_ratios[f'{name}_env_steps_per_s']:,.0f} | {ratio} |")
    lines += ["", "| environments | steps/s, rendered | steps/s, physics only | memory, MiB |", "|---|---|---|---|"]
    lines += [
        f"| {row['num_envs']} | {row['env_steps_per_s']:,.0f} | {row['physics_env_steps_per_s']:,.0f} "
        f"| {row['memory_mib']:,.0f} |"
        for row in metrics["scaling"]
    ]
    lines += ["", "![Steps per second and memory by number of environments](scaling.png)"]
    return "\n".join(lines)


COMMAND = Command(schema=BenchSimConfig, main=main)
