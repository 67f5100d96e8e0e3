"""`embodied-rm bench cloning`: reward-weighted cloning of mixed demonstrations, compared with plain cloning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from embodied_rm.command import Command
from embodied_rm.errors import UserError
from embodied_rm.experiments.pipeline import Pipeline
from embodied_rm.experiments.results_cache import ResultsCache, open_results_cache
from embodied_rm.experiments.results_page import companion_path, describe_machine, write_section
from embodied_rm.metrics import paired_difference
from embodied_rm.models.checkpoint import model_digest
from embodied_rm.paths import resolve_reward_model
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.tabletop import clone_policy, collect_episodes
from embodied_sim.registry import make_task

PLAIN, REWARD_WEIGHTED, SUCCESSES_ONLY = "plain", "reward_weighted", "successes_only"
METHODS = (PLAIN, REWARD_WEIGHTED, SUCCESSES_ONLY)


@dataclass(frozen=True, kw_only=True)
class BenchCloningConfig:
    """Config of `bench cloning`."""

    tasks: tuple[str, ...] = ("lift_cube", "open_drawer")
    num_seeds: int = 5
    num_demonstrations: int = 20
    eval_episodes: int = 200
    checkpoint: Path | None = None
    results_page: Path | None = None

    def __post_init__(self) -> None:
        for task in self.tasks:
            make_task(task)
        if self.num_seeds < 1:
            raise UserError(f"num_seeds must be >= 1, got {self.num_seeds}")
        if self.num_demonstrations < 2 or self.num_demonstrations % 2:
            raise UserError(
                f"num_demonstrations must be even and >= 2, got {self.num_demonstrations}: half of them are failures"
            )


class CloningRecipe(NamedTuple):
    """Everything that decides a cell, except for the reward model."""

    method: str
    collect_config: collect_episodes.CollectConfig
    clone_config: clone_policy.CloneCommand

    @property
    def folder(self) -> str:
        """Folder of the task and seed, in the run folder."""
        return f"{make_task(self.clone_config.task).name}/{self.clone_config.seed}"

    @property
    def name(self) -> str:
        """Name of the cell in the results cache, and its folder."""
        return f"{self.folder}/{self.method}"


def main(config: BenchCloningConfig, run: RunFolder, reporter: Reporter) -> None:
    """Record and clone by every method; write the metrics and, if set, a section of the results page."""
    digest = model_digest(resolve_reward_model(config.checkpoint))  # fails early if it is missing
    recipes = [make_recipe(config, *cell) for cell in product(range(config.num_seeds), config.tasks, METHODS)]
    cell_rates = measure_cells(
        recipes, digest, Pipeline(run, reporter), open_results_cache(config.results_page, "cloning")
    )
    results = list(zip(recipes, reporter.track(cell_rates, "cells", total=len(recipes)), strict=True))
    rates = {
        task: {
            method: [
                rate
                for cell_recipe, rate in results
                if (cell_recipe.clone_config.task, cell_recipe.method) == (task, method)
            ]
            for method in METHODS
        }
        for task in config.tasks
    }
    for task, rates_by_method in rates.items():
        reporter.table(task, {method: f"{fmean(cell):.3f}" for method, cell in rates_by_method.items()})
    run.write_json("metrics.json", {"bench": {"machine": describe_machine(), "success": rates}})
    if config.results_page is not None:
        write_section(
            config.results_page,
            "bench cloning",
            markdown_section(config, rates, config.results_page),
            title="Reward rules",
        )


def make_recipe(config: BenchCloningConfig, seed: int, task: str, method: str) -> CloningRecipe:
    """Return the recipe of a cell; its paths are relative to the folder of task and seed."""
    num_per_outcome = config.num_demonstrations // 2
    collect_config = collect_episodes.CollectConfig(
        tasks=(task,),
        num_successes=num_per_outcome,
        num_failures=num_per_outcome,
        action_noise=0.1,
        speed_range=(1.0, 1.0),
        seed=seed,
    )
    clone_config = clone_policy.CloneCommand(
        task=task,
        data=Path("demonstrations"),
        checkpoint=config.checkpoint,
        num_demonstrations=num_per_outcome if method == SUCCESSES_ONLY else config.num_demonstrations,
        eval_episodes=config.eval_episodes,
        seed=seed,
    )
    return CloningRecipe(
        method,
        collect_config,
        replace(clone_config, include_failures=method != SUCCESSES_ONLY, reward_weighted=method == REWARD_WEIGHTED),
    )


def measure_cells(
    recipes: Sequence[CloningRecipe], model_digest: str, pipeline: Pipeline, results_cache: ResultsCache
) -> Iterator[float]:
    """Yield the success rate of each cell; finished cells are read from the run folder or the results cache."""
    for cell_recipe in recipes:
        clone_config = replace(cell_recipe.clone_config, checkpoint=None)  # its path does not matter
        used_model = model_digest if cell_recipe.method == REWARD_WEIGHTED else None
        settings = {"collect": asdict(cell_recipe.collect_config), "clone": asdict(clone_config), "model": used_model}
        result = results_cache.get_or_measure(
            cell_recipe.name,
            settings,
            pipeline.run.path / cell_recipe.name,
            partial(measure_cell, cell_recipe, pipeline),
        )
        yield result["success"]


def measure_cell(cell_recipe: CloningRecipe, pipeline: Pipeline) -> dict[str, float]:
    """Record and clone, unless that is finished already."""
    seed_folder = pipeline.run.path / cell_recipe.folder
    pipeline.run_command(
        "collect", f"{cell_recipe.folder}/demonstrations", collect_episodes.COMMAND, cell_recipe.collect_config
    )
    clone_config = replace(cell_recipe.clone_config, data=seed_folder / cell_recipe.clone_config.data)
    return {
        "success": pipeline.run_command("clone", cell_recipe.name, clone_policy.COMMAND, clone_config)[
            "cloned_success"
        ]["rate"]
    }


def markdown_section(config: BenchCloningConfig, rates: Mapping[str, Mapping[str, Sequence[float]]], page: Path) -> str:
    """The results as Markdown."""
    lines = [
        "## Cloning good and bad demonstrations",
        "",
        f"`embodied-rm bench cloning`: {config.num_demonstrations} demonstrations per seed, half of them failures, "
        f"{config.num_seeds} seeds with separate recordings; success over {config.eval_episodes} episodes, mean and "
        "worst seed. reward_weighted: transitions are weighted by the predicted progress that follows them (RA-BC of "
        "SARM); the model does not know which demonstrations failed. All cells as data: "
        f"`{companion_path(page, 'cloning', '.jsonl').name}`.",
        "",
        f"| task | {' | '.join(METHODS)} | reward_weighted minus plain | 95 % |",
        "|---" * (len(METHODS) + 3) + "|",
    ]
    for task, rates_by_method in rates.items():
        gain, low, high = paired_difference(rates_by_method[REWARD_WEIGHTED], rates_by_method[PLAIN])
        cells = " | ".join(
            f"{fmean(seed_rates):.3f} ({min(seed_rates):.3f})" for seed_rates in rates_by_method.values()
        )
        lines.append(f"| `{task}` | {cells} | {gain:+.3f} | {low:+.3f} to {high:+.3f} |")
    return "\n".join(lines)


COMMAND = Command(schema=BenchCloningConfig, main=main)
