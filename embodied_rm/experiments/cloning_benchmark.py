"""`embodied-rm bench cloning`: reward-weighted cloning of mixed demonstrations, compared with plain cloning."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from embodied_rm.command import Command
from embodied_rm.errors import check_minimum
from embodied_rm.experiments.mixed_recordings import check_half_failures, check_tasks, mixed_demonstrations
from embodied_rm.experiments.pipeline import Pipeline
from embodied_rm.experiments.results_cache import ResultsCache, open_results_cache
from embodied_rm.experiments.results_page import companion_path, describe_machine, write_section
from embodied_rm.metrics import paired_difference
from embodied_rm.models.checkpoint import model_digest
from embodied_rm.paths import resolve_reward_model
from embodied_rm.report.markdown import markdown_table
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.tabletop import clone_policy, collect_episodes
from embodied_sim.registry import make_task

PLAIN, REWARD_WEIGHTED, SUCCESSES_ONLY = "plain", "reward_weighted", "successes_only"
TRANSLATION_INVARIANT = "translation_invariant"  # from the successes only
METHODS = (PLAIN, REWARD_WEIGHTED, SUCCESSES_ONLY, TRANSLATION_INVARIANT)


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
        check_tasks(self.tasks)
        check_minimum(self, 1, "num_seeds")
        check_half_failures(self.num_demonstrations)


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
    results_cache = open_results_cache(config.results_page, "cloning")
    cell_rates = measure_cells(recipes, digest, Pipeline(run, reporter), results_cache)
    rates: dict[str, dict[str, list[float]]] = {task: {method: [] for method in METHODS} for task in config.tasks}
    for recipe, rate in zip(recipes, reporter.track(cell_rates, "cells", total=len(recipes)), strict=True):
        rates[recipe.clone_config.task][recipe.method].append(rate)
    for task, rates_by_method in rates.items():
        reporter.table(task, {method: f"{fmean(cell):.3f}" for method, cell in rates_by_method.items()})
    if config.results_page is not None:
        text = markdown_section(config, rates, config.results_page)
        write_section(config.results_page, "bench cloning", text, title="Reward rules")
    run.write_json("metrics.json", {"bench": {"machine": describe_machine(), "success": rates}})


def make_recipe(config: BenchCloningConfig, seed: int, task: str, method: str) -> CloningRecipe:
    """Return the recipe of a cell; its paths are relative to the folder of task and seed."""
    half = config.num_demonstrations // 2
    successes_only = method in (SUCCESSES_ONLY, TRANSLATION_INVARIANT)
    collect_config = mixed_demonstrations(task, config.num_demonstrations, seed)
    clone_config = clone_policy.CloneCommand(
        task=task,
        data=Path("demonstrations"),
        checkpoint=config.checkpoint,
        num_demonstrations=half if successes_only else config.num_demonstrations,
        include_failures=not successes_only,
        reward_weighted=method == REWARD_WEIGHTED,
        translation_invariant=method == TRANSLATION_INVARIANT,
        eval_episodes=config.eval_episodes,
        seed=seed,
    )
    return CloningRecipe(method, collect_config, clone_config)


def measure_cells(
    recipes: Sequence[CloningRecipe], model_digest: str, pipeline: Pipeline, results_cache: ResultsCache
) -> Iterator[float]:
    """Yield the success rate of each cell; finished cells are read from the run folder or the results cache."""
    for cell_recipe in recipes:
        clone_config = replace(cell_recipe.clone_config, checkpoint=None)  # its path does not matter
        used_model = model_digest if cell_recipe.method == REWARD_WEIGHTED else None
        settings = {
            "collect": asdict(cell_recipe.collect_config),
            "clone": clone_config.cell_settings(),
            "model": used_model,
        }
        folder, measure = pipeline.run.path / cell_recipe.name, partial(measure_cell, cell_recipe, pipeline)
        yield results_cache.get_or_measure(cell_recipe.name, settings, folder, measure)["success"]


def measure_cell(cell_recipe: CloningRecipe, pipeline: Pipeline) -> dict[str, float]:
    """Record and clone, unless that is finished already."""
    folder, collect_config = f"{cell_recipe.folder}/demonstrations", cell_recipe.collect_config
    pipeline.run_command("collect", folder, collect_episodes.COMMAND, collect_config)
    clone_config = replace(cell_recipe.clone_config, data=pipeline.run.path / folder)
    metrics = pipeline.run_command("clone", cell_recipe.name, clone_policy.COMMAND, clone_config)
    return {"success": metrics["cloned_success"]["rate"]}


def markdown_section(config: BenchCloningConfig, rates: Mapping[str, Mapping[str, Sequence[float]]], page: Path) -> str:
    """Return the results as Markdown."""
    rows = []
    for task, task_rates in rates.items():
        cells = [f"{fmean(seed_rates):.3f} ({min(seed_rates):.3f})" for seed_rates in task_rates.values()]
        pairs = ((REWARD_WEIGHTED, PLAIN), (TRANSLATION_INVARIANT, SUCCESSES_ONLY))
        gains = [paired_difference(task_rates[method], task_rates[other]) for method, other in pairs]
        rows.append((f"`{task}`", *cells, *(f"{gain:+.3f} ({low:+.3f} to {high:+.3f})" for gain, low, high in gains)))
    lines = [
        "## Cloning good and bad demonstrations",
        "",
        f"`embodied-rm bench cloning`: {config.num_demonstrations} demonstrations per seed, half of them failures, "
        f"{config.num_seeds} seeds with separate recordings; success over {config.eval_episodes} episodes, mean and "
        "worst seed. reward_weighted: transitions are weighted by the predicted progress that follows them (RA-BC of "
        "SARM); the model does not know which demonstrations failed. translation_invariant: the policy sees no "
        "horizontal position but those relative to its tool, and imitates the successes. All cells as data: "
        f"`{companion_path(page, 'cloning', '.jsonl').name}`.",
        "",
        *markdown_table(
            ("task", *METHODS, "reward_weighted minus plain, 95 %", "translation_invariant minus successes_only, 95 %"),
            rows,
        ),
    ]
    return "\n".join(lines)


COMMAND = Command(resumable=True, schema=BenchCloningConfig, main=main)
