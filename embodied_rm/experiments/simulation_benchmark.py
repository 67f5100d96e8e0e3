"""`embodied-rm bench sim`: speed of the simulator, compared with Gymnasium's `AsyncVectorEnv`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embodied_rm.command import Command, to_base_config
from embodied_rm.errors import UserError, check_minimum
from embodied_rm.experiments.results_page import describe_machine, write_results
from embodied_rm.report.markdown import markdown_table
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
        check_minimum(self, 1, "num_envs", "image_size", "rollout_steps", "env_steps")
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
    scaling = measure_scaling(rollout, config.num_envs_list, config.env_steps)
    rows = [
        {
            "num_envs": count,
            "env_steps_per_s": rendered.env_steps_per_s,
            "physics_env_steps_per_s": physics_only.env_steps_per_s,
            "memory_mib": rendered.memory_mib,
        }
        for count, rendered, physics_only in reporter.track(scaling, "scale", total=len(config.num_envs_list))
    ]
    for row in rows:
        reporter.table(f"{row['num_envs']} environments", row)
    metrics = {"rollout": vars(rollout), "compared": ratios, "scaling": rows}
    plot_scaling(run.file_path(PLOT_FILE), rows)
    write_results(run, config.results_page, "bench sim", metrics, markdown_section(metrics))
    if config.results_page is not None:
        plot_scaling(config.results_page.with_name(PLOT_FILE), rows)


def markdown_section(metrics: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    speed_ratios, rollout = metrics["compared"], metrics["rollout"]
    labels = {
        "ours": "`TabletopVecEnv`",
        "async_fast": "`AsyncVectorEnv` with `mujoco.Renderer`, shadows and antialiasing off",
        "async_default": "`AsyncVectorEnv` with `mujoco.Renderer`, default settings",
    }
    speed_rows = []
    for name, label in labels.items():
        ratio = "" if name == "ours" else f"{speed_ratios[f'ours_to_{name}']:.2f}"
        speed_rows.append((label, f"{speed_ratios[f'{name}_env_steps_per_s']:,.0f}", ratio))
    columns = ("num_envs", "env_steps_per_s", "physics_env_steps_per_s", "memory_mib")
    lines = [
        "## Simulator",
        "",
        f"`embodied-rm bench sim`: `{rollout['task']}`, {rollout['num_envs']} environments, views "
        f"{', '.join(rollout['views'])} at {rollout['image_size']}x{rollout['image_size']} after every step; medians "
        f"of {NUM_ROUNDS} interleaved runs in separate processes.",
        "",
        *markdown_table(("environments", "steps per second", "speedup of ours"), speed_rows),
        "",
        *markdown_table(
            ("environments", "steps/s, rendered", "steps/s, physics only", "memory, MiB"),
            [[f"{row[name]:{'' if name == 'num_envs' else ',.0f'}}" for name in columns] for row in metrics["scaling"]],
        ),
        "",
        "![Steps per second and memory by number of environments](scaling.png)",
    ]
    return "\n".join(lines)


COMMAND = Command(schema=BenchSimConfig, main=main)
