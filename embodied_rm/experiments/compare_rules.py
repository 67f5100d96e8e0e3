"""`embodied-rm compare`: compare reward rules on paired refinements of the same cloned policies."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from embodied_rm.command import Command
from embodied_rm.errors import UserError, check_minimum
from embodied_rm.experiments.comparison import (
    CellResult,
    check_same_policy,
    filter_by_rule,
    group_by_task,
    summarize_cells,
)
from embodied_rm.experiments.comparison_page import Comparison, markdown_tables
from embodied_rm.experiments.pipeline import Pipeline
from embodied_rm.experiments.recipe import RefinementRecipe, clone_demonstrations, with_rule
from embodied_rm.experiments.results_cache import ResultsCache, begin_cell, open_results_cache
from embodied_rm.experiments.results_page import companion_path, describe_machine, write_section
from embodied_rm.experiments.task_presets import TaskPreset, preset_clone_config, preset_refine_config, preset_table
from embodied_rm.models.checkpoint import weights_digest
from embodied_rm.paths import POLICY_DIR, resolve_checkpoint
from embodied_rm.report import write_report
from embodied_rm.report.plot import plot_learning_curves
from embodied_rm.rewards.rules import find_rule
from embodied_rm.rl.envs.rollout_stats import HOVER_POTENTIAL
from embodied_rm.rl.refine_checkpoint import PROGRESS_FILE
from embodied_rm.rl.refine_config import USES_RECORDED
from embodied_rm.rl.watch.log_rows import read_rows, training_episodes
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.tabletop import clone_policy, collect_episodes, refine_policy
from embodied_rm.tabletop.refine_command import RefineCommand, load_reward_model, reward_model_digest
from embodied_sim.registry import make_task

DEFAULT_PRESET = "default"  # key of the preset for tasks without one of their own


@dataclass(frozen=True, kw_only=True)
class CompareConfig:
    """Config of `compare`; paths are relative to the run folder."""

    tasks: tuple[str, ...]
    rules: tuple[str, ...]
    num_seeds: int = 5
    target_success: float = 0.8
    checkpoint: Path | None = None
    name: str = "rules"
    results_page: Path | None = None
    task_presets: dict[str, TaskPreset]
    collect: collect_episodes.CollectConfig
    clone: clone_policy.CloneCommand
    refine: RefineCommand

    def __post_init__(self) -> None:
        for task in self.tasks:
            make_task(task)
        for rule in self.rules:
            find_rule(rule)
        for name, values in (("tasks", self.tasks), ("rules", self.rules)):
            if len(set(values)) != len(values) or not values:
                raise UserError(f"{name} must name one or more, each once, got [{', '.join(values)}]")
        check_minimum(self, 1, "num_seeds")
        if not 0 < self.target_success <= 1:
            raise UserError(f"target_success must be in (0, 1], got {self.target_success}")
        if self.refine.eval_episodes < 1:
            raise UserError("refine.eval_episodes must be >= 1: the comparison needs learning curves")
        for task in self.tasks:
            self._check_preset(task)

    def _check_preset(self, task: str) -> None:
        """Raise `UserError` for settings with which a cell of the task would fail hours later."""
        preset = task_preset(self, task)
        if preset.num_demonstrations > self.collect.num_successes:
            raise UserError(
                f"{task}: {preset.num_demonstrations} demonstrations needed, and only collect.num_successes="
                f"{self.collect.num_successes} are recorded"
            )
        if self.refine.algorithm in USES_RECORDED:
            self._check_recorded_use()
        for rule in self.rules:
            max_steps = make_task(task).max_episode_steps
            with_rule(rule, self.refine.reward).check_rollout_steps(preset.rollout_steps, max_steps)

    def _check_recorded_use(self) -> None:
        """Raise `UserError` for rules and policies that an algorithm with recorded episodes does not support."""
        algorithm = self.refine.algorithm
        for name in self.rules:
            if not find_rule(name).per_step or find_rule(name).treats_timeout_as_terminal:
                raise UserError(f"refine.algorithm={algorithm} needs rules that are known step by step, not {name}")
        if self.clone.obs_mode != "state":
            observed = f"clone.obs_mode={self.clone.obs_mode}"
            raise UserError(f"refine.algorithm={algorithm} is for policies of the state, not {observed}")


def main(config: CompareConfig, run: RunFolder, reporter: Reporter) -> None:
    """Refine every unfinished cell; write metrics, report and results page."""
    digest = reward_model_digest(replace(config.refine, checkpoint=config.checkpoint))
    for rule in config.rules:  # an unsuitable model fails before anything is recorded
        reward_config = with_rule(rule, config.refine.reward)
        load_reward_model(replace(config.refine, checkpoint=config.checkpoint, reward=reward_config))
    pipeline, results_cache = Pipeline(run, reporter), open_results_cache(config.results_page, config.name)
    recipes = [make_recipe(config, *cell) for cell in product(range(config.num_seeds), config.tasks, config.rules)]
    cells = list(reporter.track(measure_cells(recipes, digest, pipeline, results_cache), "cells", total=len(recipes)))
    target, page = config.target_success, config.results_page
    comparison = Comparison(rules=config.rules, target_success=target, num_seeds=config.num_seeds, cells=cells)
    for task, task_cells in group_by_task(cells).items():
        for rule in config.rules:
            reporter.table(f"{task}, {rule}", summarize_cells(filter_by_rule(task_cells, rule), target))
    write_report(run.file_path("report.html"), comparison.build_report())
    plot_learning_curves(run.file_path("learning.png"), comparison.success_bands(), target)
    if page is not None:
        plot_learning_curves(companion_path(page, config.name, ".png"), comparison.success_bands(), target)
        num_versions = results_cache.count_code_versions([recipe.name for recipe in recipes])
        text = markdown_section(config, comparison, page, num_versions, digest)
        write_section(page, f"compare {config.name}", text, title="Reward rules")
    run.write_json("metrics.json", {"machine": describe_machine(), **comparison.as_dict()})


def task_preset(config: CompareConfig, task: str) -> TaskPreset:
    """Return the preset of a task, or the default one."""
    return config.task_presets.get(task, config.task_presets[DEFAULT_PRESET])


def make_recipe(config: CompareConfig, seed: int, task: str, rule: str) -> RefinementRecipe:
    """Return the recipe of the cell of a task, seed and rule.

    A policy of embeddings is cloned from the views that it is refined with.
    """
    preset = task_preset(config, task)
    collect = replace(config.collect, tasks=(task,), seed=config.collect.seed + seed)
    clone = preset_clone_config(replace(config.clone, seed=seed), task, config.clone.data, preset, config.checkpoint)
    refine = preset_refine_config(config.refine, task, config.refine.policy, config.checkpoint, preset)
    refine = replace(refine, seed=seed, reward=with_rule(rule, config.refine.reward))
    if config.clone.obs_mode != "state":
        views = config.refine.env.views
        collect = replace(collect, env=replace(collect.env, views=views))
        clone = replace(clone, env=replace(clone.env, views=views))
    return RefinementRecipe(collect=collect, clone=clone, refine=refine)


def measure_cells(
    recipes: Sequence[RefinementRecipe], model_digest: str, pipeline: Pipeline, results_cache: ResultsCache
) -> Iterator[CellResult]:
    """Yield the result of each cell; finished cells are read from the run folder or the results cache.

    All cells of a task and seed start from the same policy; otherwise cells are independent. `model_digest` is that of
    the reward model.
    """
    root, first_cells = pipeline.run.path, dict[str, CellResult]()
    for recipe in recipes:
        policy_settings, cell_settings = recipe.cache_settings(model_digest)
        measure = partial(measure_cell, recipe, policy_settings, pipeline, first_cells.get(recipe.seed_folder))
        result = results_cache.get_or_measure(recipe.name, cell_settings, root / recipe.name, measure)
        cell = CellResult.from_json(result)
        check_same_policy(first_cells.setdefault(recipe.seed_folder, cell), cell.rule, cell.policy_digest)
        yield cell


def measure_cell(
    recipe: RefinementRecipe, policy_settings: Mapping[str, Any], pipeline: Pipeline, first_cell: CellResult | None
) -> dict[str, Any]:
    """Record, clone and refine, skipping finished parts; `first_cell` must have started from the same policy.

    `policy_settings` are everything that decides the cloned policy.
    """
    root, rule = pipeline.run.path / recipe.seed_folder, recipe.refine.reward.rule
    begin_cell(root, policy_settings)
    policy = clone_demonstrations(recipe, pipeline)
    recorded = recipe.refine.recorded_data
    recorded_data = None if recorded is None else root / recorded
    refine_config = replace(recipe.refine, policy=policy, recorded_data=recorded_data)
    if first_cell is not None:  # checked before the long refinement
        check_same_policy(first_cell, rule, weights_digest(resolve_checkpoint(refine_config.policy, POLICY_DIR)))
    pipeline.run_command(rule, recipe.name, refine_policy.COMMAND, refine_config)
    return asdict(read_cell(pipeline.run.path / recipe.name, refine_config))


def read_cell(folder: Path, refine_config: RefineCommand) -> CellResult:
    """Read the cell of a finished refinement; without a reward model there are no predictions."""
    rows, uses_model = read_rows(folder / PROGRESS_FILE), not refine_config.reward.uses_simulator_only
    metrics = next(iter(RunFolder(folder).read_json("metrics.json")["tasks"].values()))
    knows_hovers = uses_model or find_rule(refine_config.reward.rule).progress_source == "simulator"
    return CellResult(
        task=make_task(refine_config.task).name,
        seed=refine_config.seed,
        rule=refine_config.reward.rule,
        success_source=refine_config.reward.success_source,
        policy_digest=weights_digest(resolve_checkpoint(refine_config.policy, POLICY_DIR)),
        cloned_success=metrics["cloned_success"],
        refined_success=metrics["refined_success"],
        success_curve=tuple(row["eval_success_rate"] for row in rows),
        predicted_success=tuple(row["predicted_success"] if uses_model else None for row in rows),
        hover_rates=tuple(row["hover_rate"] if knows_hovers else None for row in rows),
        alarm_iterations=tuple(metrics["alarms"]),
        cumulative_episodes=tuple(np.cumsum([training_episodes(row) for row in rows]).tolist()),
        seconds_by_phase=metrics["seconds"],
    )


def markdown_section(
    config: CompareConfig, comparison: Comparison, page: Path, num_versions: int, model_digest: str
) -> str:
    """Return the results as Markdown; `model_digest` is that of the reward model."""
    model_name = "the bundled model" if config.checkpoint is None else f"`{config.checkpoint}`"
    lines = [
        f"## {config.name}",
        "",
        f"`embodied-rm compare`, {config.num_seeds} paired seeds, {config.refine.env.num_envs} environments, "
        f"scored every {config.refine.reward.score_every} steps (rules of the simulator's state: every step). "
        "Success source: what decides in training that an episode succeeded, which ends it; all numbers here are "
        f"those of the simulator. Rollouts: training episodes until {config.target_success:g} of "
        f"{config.refine.eval_episodes} evaluation episodes succeeded, median over seeds; seeds that never "
        f"reached it count as infinite. After 150 episodes: the first {config.refine.critic_warmup_iterations} "
        f"iterations train only the critic. Refined: {config.refine.final_eval_episodes} episodes per seed. Hover "
        "rate: fraction of the last iteration's episodes that end at the time limit without success, with a "
        f"potential of at least {HOVER_POTENTIAL:g}. Ranking agreement: Kendall's tau_a of the policies of all "
        "iterations, ranked by predicted and by true success, if the model ends the episodes. p: one-sided "
        "paired permutation test, with censored runs. All cells as data: "
        f"`{companion_path(page, config.name, '.jsonl').name}`, measured by {num_versions} "
        f"version{'s' * (num_versions > 1)} of the code.",
        "",
        f"![learning curves]({companion_path(page, config.name, '.png').name})",
        "",
        *markdown_tables(comparison.tables()),
        "",
        *preset_table({task: task_preset(config, task) for task in config.tasks}),
        "",
        f"KL coefficient to the cloned policy: {config.refine.bc_kl_coef:g}, decaying to 0. Imitation coefficient: "
        f"{config.refine.imitation_coef:g}. Heuristic coefficient: {config.refine.heuristic_coef:g}, decaying to 0 as "
        f"the mean final potential reaches {config.refine.heuristic_off_at:g} (success counts as 1), and over the "
        f"refinement. Observations: {config.clone.obs_mode}. Reward model: {model_name}, {model_digest[:12]}.",
    ]
    return "\n".join(lines)


COMMAND = Command(resumable=True, schema=CompareConfig, main=main)
