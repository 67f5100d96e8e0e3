"""`embodied-rm bench experts`: success of every task's expert on all robots and both physics backends."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from embodied_rm.command import Command
from embodied_rm.errors import check_minimum
from embodied_rm.experiments.results_page import write_results
from embodied_rm.report.markdown import markdown_table
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_sim.bench.expert_success import expert_success_rate, task_robot_pairs

BACKENDS = ("batch", "warp")
ExpertRates = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class BenchExpertsConfig:
    """Config of `bench experts`."""

    tasks: tuple[str, ...] = ()
    num_episodes: int = 100
    num_warp_episodes: int = 32
    results_page: Path | None = None

    def __post_init__(self) -> None:
        task_robot_pairs(self.tasks)
        check_minimum(self, 1, "num_episodes", "num_warp_episodes")


def main(config: BenchExpertsConfig, run: RunFolder, reporter: Reporter) -> None:
    """Measure; write the rates and, if set, a section of the results page."""
    cells = task_robot_pairs(config.tasks)
    rates = dict(reporter.track(measure_rates(config, cells), "experts", total=len(cells)))
    for (task, robot), robot_rates in rates.items():
        reporter.table(f"{task}, {robot}", dict(robot_rates))
    records = [{"task": task, "robot": robot, **robot_rates} for (task, robot), robot_rates in rates.items()]
    write_results(run, config.results_page, "bench experts", {"experts": records}, markdown_section(config, rates))


def measure_rates(
    config: BenchExpertsConfig, cells: list[tuple[str, str]]
) -> Iterator[tuple[tuple[str, str], ExpertRates]]:
    """Yield the success rates per task and robot; both backends share the first episodes."""
    episodes = {"batch": config.num_episodes, "warp": config.num_warp_episodes}
    for task, robot in cells:
        rates = {backend: expert_success_rate(task, robot, backend, episodes[backend]) for backend in BACKENDS}
        rates["batch_same_episodes"] = expert_success_rate(task, robot, "batch", episodes["warp"])
        yield (task, robot), rates


def markdown_section(config: BenchExpertsConfig, rates: Mapping[tuple[str, str], ExpertRates]) -> str:
    """Return the results as Markdown."""
    columns = ("batch", "batch_same_episodes", "warp")
    rows = [(task, robot, *(f"{row[name]:.2f}" for name in columns)) for (task, robot), row in rates.items()]
    lines = [
        "## Experts",
        "",
        "`embodied-rm bench experts`: success rate of the scripted expert, without noise, at full speed. On the "
        f"batch backend {config.num_episodes} seeded episodes; on Warp's (device cpu) the first "
        f"{config.num_warp_episodes} of them, next to the rate of the batch backend on those.",
        "",
        *markdown_table(("task", "arm", "batch", "batch, the same episodes", "warp"), rows),
    ]
    return "\n".join(lines)


COMMAND = Command(schema=BenchExpertsConfig, main=main)
