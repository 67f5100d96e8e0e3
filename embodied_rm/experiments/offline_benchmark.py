"""`embodied-rm bench offline`: policies from recorded episodes, by cloning and by offline reinforcement learning."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from embodied_rm.checkpoint_io import MANIFEST_NAME
from embodied_rm.command import Command
from embodied_rm.data.dataset_path import resolve_dataset
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.errors import check_minimum
from embodied_rm.experiments.inferred_actions import clone_inferred
from embodied_rm.experiments.mixed_recordings import (
    NUM_BEHAVIOR_DEMONSTRATIONS,
    MethodCell,
    check_half_failures,
    check_methods,
    check_tasks,
    record_mixed,
)
from embodied_rm.experiments.pipeline import Pipeline
from embodied_rm.experiments.results_cache import open_results_cache
from embodied_rm.experiments.results_page import companion_path, describe_machine, write_section
from embodied_rm.labels.comparisons import draw_clip_pairs
from embodied_rm.labels.subtasks import goal_of
from embodied_rm.metrics import paired_difference
from embodied_rm.models.checkpoint import model_digest
from embodied_rm.paths import CHECKPOINT_DIR, resolve_reward_model
from embodied_rm.report.markdown import markdown_table
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.score.compare_clips import compare_clips
from embodied_rm.score.ranked_factors import PROGRESS_ALONE, RecordedFacts, ranked_comparer
from embodied_rm.tabletop import clone_policy, offline_policy
from embodied_rm.training import TrainConfig, train
from embodied_rm.types import Episode

BC, RA_BC = "bc", "ra_bc"
LABELED_SHARES = {"bc_successes": 1.0, "bc_successes_10": 0.1}
"""Method that clones the successes -> share of the episodes whose actions are known."""
COMPARED_FLIP_RATES = {"iql_compared_0": 0.0, "iql_compared_10": 0.1, "iql_compared_20": 0.2}
RULES: Mapping[str, Mapping[str, Any]] = {
    "iql_sparse": {"rule": "sparse"},
    "iql_shaped": {"rule": "shaped"},
    "iql_dense": {"rule": "dense"},
    "cql_dense": {"rule": "dense", "method": "cql"},
    "famo2o_dense": {"rule": "dense", "method": "famo2o"},
    **{name: {"rule": "raw", "success_reward": 0.0, "rank_progress": True} for name in COMPARED_FLIP_RATES},
}
"""Method of offline learning -> its settings."""
METHODS = (BC, RA_BC, *LABELED_SHARES, *RULES)
FIRST_SEED = 1  # settings were chosen on recordings of seed 0


@dataclass(frozen=True, kw_only=True)
class BenchOfflineConfig:
    """Config of `bench offline`."""

    tasks: tuple[str, ...] = ("lift_cube", "open_drawer", "turn_lever")
    methods: tuple[str, ...] = ()  # empty: all
    num_seeds: int = 5
    num_demonstrations: int = 20
    num_rollouts: int = 40
    num_pairs: int = 1000
    train_steps: int = 600
    offline_steps: int = 2000
    eval_episodes: int = 200
    checkpoint: Path | None = None
    results_page: Path | None = None

    def __post_init__(self) -> None:
        check_tasks(self.tasks)
        check_methods(self.methods, METHODS)
        check_minimum(self, 1, "num_seeds", "num_rollouts", "num_pairs")
        check_half_failures(self.num_demonstrations)

    @property
    def selected_methods(self) -> tuple[str, ...]:
        """The methods to compare."""
        return self.methods or METHODS


def main(config: BenchOfflineConfig, run: RunFolder, reporter: Reporter) -> None:
    """Record and learn by every method; write the metrics and, if set, the results page."""
    digest = model_digest(resolve_reward_model(config.checkpoint))  # fails early if it is missing
    seeds = range(FIRST_SEED, FIRST_SEED + config.num_seeds)
    cells = [MethodCell(*values) for values in product(seeds, config.tasks, config.selected_methods)]
    cache, pipeline = open_results_cache(config.results_page), Pipeline(run, reporter)
    base_settings = {**asdict(config), "tasks": None, "methods": None, "num_seeds": None, "results_page": None}
    rates: dict[str, dict[str, list[float]]] = {
        task: {method: [] for method in config.selected_methods} for task in config.tasks
    }
    for cell in reporter.track(cells, "cells"):
        used_model = digest if cell.method in (RA_BC, "iql_shaped") else None
        settings = {**base_settings, **cell._asdict(), "checkpoint": used_model}
        measure = partial(measure_cell, cell, config, pipeline)
        result = cache.get_or_measure(cell.name, settings, run.path / "cells" / cell.name, measure)
        rates[cell.task][cell.method].append(result["success"])
    for task, rates_by_method in rates.items():
        reporter.table(task, {method: f"{fmean(values):.3f}" for method, values in rates_by_method.items()})
    if config.results_page is not None:
        text = markdown_section(config, rates, config.results_page)
        write_section(config.results_page, "bench offline", text, title="Policies from recorded episodes")
    run.write_json("metrics.json", {"bench": {"machine": describe_machine(), "success": rates}})


def measure_cell(cell: MethodCell, config: BenchOfflineConfig, pipeline: Pipeline) -> dict[str, float]:
    """Record, unless that is finished already, and learn one policy."""
    data = record_mixed(cell.task, cell.seed, cell.folder, config, pipeline)
    common: dict[str, Any] = {"task": cell.task, "data": data, "eval_episodes": config.eval_episodes, "seed": cell.seed}
    if cell.method in (BC, RA_BC):
        all_episodes = len(LeRobotDataset(resolve_dataset(data)).meta)
        clone_config = clone_policy.CloneCommand(
            **common,
            num_demonstrations=all_episodes,
            include_failures=True,
            reward_weighted=cell.method == RA_BC,
            checkpoint=config.checkpoint,
        )
        metrics = pipeline.run_command("clone", cell.name, clone_policy.COMMAND, clone_config)
        return {"success": metrics["cloned_success"]["rate"]}
    if cell.method in LABELED_SHARES:
        with pipeline.time_phase("clone"):
            share = LABELED_SHARES[cell.method]
            return {"success": clone_inferred(cell, data, share, config.eval_episodes, pipeline.reporter)}
    checkpoint = config.checkpoint
    if cell.method in COMPARED_FLIP_RATES:
        with pipeline.time_phase("train"):
            checkpoint = train_compared(cell, config, data, pipeline)
    settings = {**common, **RULES[cell.method], "checkpoint": checkpoint, "steps": config.offline_steps}
    command = offline_policy.COMMAND
    metrics = pipeline.run_command("offline", cell.name, command, offline_policy.OfflineCommand(**settings))
    return {"success": metrics["offline_success"]["rate"]}


def train_compared(cell: MethodCell, config: BenchOfflineConfig, data: Path, pipeline: Pipeline) -> Path:
    """Train a reward model on comparisons alone, without progress, outcome and subtasks; return its run."""
    run = RunFolder.open(pipeline.run.path / cell.folder / f"model_{cell.method}", resume=True)
    if (run.path / CHECKPOINT_DIR / MANIFEST_NAME).exists():
        return run.path
    source = LeRobotDataset(resolve_dataset(data))
    episodes = [source.episode(row) for row in range(len(source.meta))]
    goals = {episode.name: goal_of(episode) for episode in episodes}
    pairs = draw_clip_pairs(goals, config.num_pairs, 0.25, cell.seed)
    recorded = {episode.name: RecordedFacts(length=len(episode), progress=episode.progress) for episode in episodes}
    answers = ranked_comparer(recorded, PROGRESS_ALONE, COMPARED_FLIP_RATES[cell.method], cell.seed)
    compare_clips(pairs, answers, run.path, pipeline.reporter)
    train_config = TrainConfig(
        label_schemes=("compared",),
        comparisons=run.path,
        fusion="forward",
        steps=config.train_steps,
        seed=cell.seed,
    )
    train([without_labels(episode) for episode in episodes], train_config, run, pipeline.reporter)
    return run.path


def without_labels(episode: Episode) -> Episode:
    """Return the episode without progress, outcome and subtasks."""
    return replace(episode, progress=None, success=None, subtasks=())


def markdown_section(config: BenchOfflineConfig, rates: Mapping[str, Mapping[str, Sequence[float]]], page: Path) -> str:
    """Return the results as Markdown."""
    rows = [
        (
            f"`{method}`",
            *(f"{fmean(rates[task][method]):.3f} ({min(rates[task][method]):.3f})" for task in config.tasks),
        )
        for method in config.selected_methods
    ]
    pooled = {
        method: [rate for task in config.tasks for rate in rates[task][method]] for method in config.selected_methods
    }
    differences = [
        (f"`{method}`", *(difference_cell(pooled[method], pooled[other]) for other in (BC, RA_BC) if other in pooled))
        for method in config.selected_methods
        if method in RULES
    ]
    lines = [
        "## Cloning and offline reinforcement learning",
        "",
        f"`embodied-rm bench offline`: {config.num_demonstrations} demonstrations per seed, half of them failures, and "
        f"{config.num_rollouts} rollouts of a policy that was cloned from {NUM_BEHAVIOR_DEMONSTRATIONS} of them, with "
        f"exploration noise. No environment step is taken. {config.num_seeds} seeds with separate recordings; success "
        f"over {config.eval_episodes} episodes, mean and worst seed. `iql_compared`: the reward model saw "
        f"{config.num_pairs} comparisons of clips by the recorded progress, of which 0, 10 or 20 % were wrong, and "
        "nothing else. `bc_successes` clones the successes; `bc_successes_10` knows the actions of 10 % of the "
        "episodes and infers the others. All cells as data: "
        f"`{companion_path(page, '', '.jsonl').name}`.",
        "",
        *markdown_table(("method", *(f"`{task}`" for task in config.tasks)), rows),
        "",
        f"Difference of the success rates over all tasks and seeds, with its 95 % interval (Student's t, "
        f"{len(pooled[config.selected_methods[0]])} pairs):",
        "",
        *markdown_table(("method", *(f"minus `{other}`" for other in (BC, RA_BC) if other in pooled)), differences),
    ]
    return "\n".join(lines)


def difference_cell(first: Sequence[float], second: Sequence[float]) -> str:
    """Return the mean of a paired difference with its interval."""
    mean, low, high = paired_difference(first, second)
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"


COMMAND = Command(resumable=True, schema=BenchOfflineConfig, main=main)
