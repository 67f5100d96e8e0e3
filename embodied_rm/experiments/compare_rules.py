"""`embodied-rm compare`: reward rules side by side, each from the same cloned policies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from embodied_rm.command import Command
from embodied_rm.errors import UserError
from embodied_rm.experiments.comparison import (
    CellResult,
    check_same_policy,
    filter_by_rule,
    group_by_task,
    summarize_cells,
)
from embodied_rm.experiments.comparison_page import Comparison, markdown_tables
from embodied_rm.experiments.pipeline import Pipeline
from embodied_rm.experiments.recipe import RefinementRecipe, with_rule
from embodied_rm.experiments.results_cache import ResultsCache, begin_cell, open_results_cache
from embodied_rm.experiments.results_page import companion_path, describe_machine, write_section
from embodied_rm.experiments.task_presets import TaskPreset, preset_clone_config, preset_refine_config, preset_table
from embodied_rm.models.checkpoint import model_digest, weights_digest
from embodied_rm.models.judges.judge_config import judge_digest
from embodied_rm.paths import POLICY_DIR, resolve_checkpoint, resolve_reward_model
from embodied_rm.report import write_report
from embodied_rm.report.plot import plot_learning_curves
from embodied_rm.rewards.rules import find_rule
from embodied_rm.rl.envs.rollout_stats import HOVER_POTENTIAL
from embodied_rm.rl.refine_checkpoint import PROGRESS_FILE
from embodied_rm.rl.watch.log_rows import read_rows
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.tabletop import clone_policy, collect_episodes, refine_policy
from embodied_sim.registry import make_task

DEFAULT_PRESET = "default"
"""Key of the sizes of tasks that have none of their own."""


@dataclass(frozen=True, kw_only=True)
class CompareConfig:
    """Which rules on which tasks; paths are inside the run folder."""

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
    refine: refine_policy.RefineCommand

    def __post_init__(self) -> None:
        for task in self.tasks:
            make_task(task)
        for rule in self.rules:
            find_rule(rule)
        for name, values in (("tasks", self.tasks), ("rules", self.rules)):
            if len(set(values)) != len(values) or not values:
                raise UserError(f"{name} must name one or more, each once, got [{', '.join(values)}]")
        if self.num_seeds < 1:
            raise UserError(f"num_seeds must be >= 1, got {self.num_seeds}")
        if not 0 < self.target_success <= 1:
            raise UserError(f"target_success must be in (0, 1], got {self.target_success}")
        if self.refine.eval_episodes < 1:
            raise UserError("refine.eval_episodes must be >= 1: without learning curves nothing can be compared")
        for task in self.tasks:
            self._check_preset(task)

    def _check_preset(self, task: str) -> None:
        """Raises `UserError` for what a cell of the task would stumble over after hours."""
        preset = task_preset(self, task)
        if preset.num_demonstrations > self.collect.num_successes:
            raise UserError(
                f"{task}: {preset.num_demonstrations} demonstrations asked for, and collect.num_successes="
                f"{self.collect.num_successes} are recorded"
            )
        for rule in self.rules:
            max_steps = make_task(task).max_episode_steps
            with_rule(rule, self.refine.reward).check_rollout_steps(preset.rollout_steps, max_steps)


def main(config: CompareConfig, run: RunFolder, reporter: Reporter) -> None:
    """Refine every cell that is not finished; leave the numbers, the page and the report."""
    judge_config = config.refine.judge
    digest = (
        model_digest(resolve_reward_model(config.checkpoint))
        if judge_config.type is None
        else judge_digest(judge_config)
    )
    for rule in config.rules:  # what cannot judge is told before anything is recorded
        reward_config = with_rule(rule, config.refine.reward)
        refine_policy.load_reward_model(replace(config.refine, checkpoint=config.checkpoint, reward=reward_config))
    pipeline, results_cache = Pipeline(run, reporter), open_results_cache(config.results_page, config.name)
    recipes = [
        make_recipe(config, *cell_key) for cell_key in product(range(config.num_seeds), config.tasks, config.rules)
    ]
    cells = list(reporter.track(measure_cells(recipes, digest, pipeline, results_cache), "cells", total=len(recipes)))
    comparison = Comparison(
        rules=config.rules, target_success=config.target_success, num_seeds=config.num_seeds, cells=cells
    )
    for task, task_cells in group_by_task(cells).items():
        for rule in config.rules:
            reporter.table(f"{task}, {rule}", summarize_cells(filter_by_rule(task_cells, rule), config.target_success))
    run.write_json("metrics.json", {"machine": describe_machine(), **comparison.as_dict()})
    write_report(run.file_path("report.html"), comparison.build_report())
    plot_learning_curves(run.file_path("learning.png"), comparison.success_bands(), config.target_success)
    if config.results_page is not None:
        plot_learning_curves(
            companion_path(config.results_page, config.name, ".png"), comparison.success_bands(), config.target_success
        )
        text = markdown_section(
            config,
            comparison,
            config.results_page,
            results_cache.count_code_versions([cell_key.name for cell_key in recipes]),
            digest,
        )
        write_section(config.results_page, f"compare {config.name}", text, title="Reward rules")


def task_preset(config: CompareConfig, task: str) -> TaskPreset:
    """Those of a task, or of any other."""
    return config.task_presets.get(task, config.task_presets[DEFAULT_PRESET])


def make_recipe(config: CompareConfig, seed: int, task: str, rule: str) -> RefinementRecipe:
    """How the cell of a task, a seed and a rule comes about. A policy that sees images is recorded for and cloned
    from the views that it is refined with."""
    preset = task_preset(config, task)
    collect_config = replace(config.collect, tasks=(task,), seed=config.collect.seed + seed)
    clone_config = replace(
        preset_clone_config(config.clone, task, config.clone.data, preset, config.checkpoint), seed=seed
    )
    refine_config = preset_refine_config(config.refine, task, config.refine.policy, config.checkpoint, preset)
    if config.clone.obs_mode != "state":
        policy_views = config.refine.env.views
        collect_config = replace(collect_config, env=replace(collect_config.env, views=policy_views))
        clone_config = replace(clone_config, env=replace(clone_config.env, views=policy_views))
    reward_config = with_rule(rule, config.refine.reward)
    return RefinementRecipe(
        collect=collect_config, clone=clone_config, refine=replace(refine_config, seed=seed, reward=reward_config)
    )


def measure_cells(
    recipes: Sequence[RefinementRecipe], model_digest: str, pipeline: Pipeline, results_cache: ResultsCache
) -> Iterator[CellResult]:
    """Cell by cell; what is finished, here or in the ledger, is only read. No cell knows of another but for the policy
    that it starts from, which is that of all cells of a task and a seed. `model`: digest of the one that pays."""
    root, first_cells = pipeline.run.path, dict[str, CellResult]()
    for cell_recipe in recipes:
        policy_settings, cell_settings = cell_recipe.cache_settings(model_digest)
        measure = partial(
            measure_cell, cell_recipe, policy_settings, pipeline, first_cells.get(cell_recipe.seed_folder)
        )
        cell = CellResult.from_json(
            results_cache.get_or_measure(cell_recipe.name, cell_settings, root / cell_recipe.name, measure)
        )
        check_same_policy(first_cells.setdefault(cell_recipe.seed_folder, cell), cell.rule, cell.policy_digest)
        yield cell


def measure_cell(
    cell_recipe: RefinementRecipe, policy_settings: Mapping[str, Any], pipeline: Pipeline, first_cell: CellResult | None
) -> dict[str, Any]:
    """Record, clone and refine whatever of that is not finished; `policy`: what decides the cloned one, `known`: a cell
    that must have begun with it."""
    root = pipeline.run.path
    begin_cell(root / cell_recipe.seed_folder, policy_settings)
    pipeline.run_command(
        "collect", f"{cell_recipe.seed_folder}/demonstrations", collect_episodes.COMMAND, cell_recipe.collect
    )
    clone_config = replace(cell_recipe.clone, data=root / cell_recipe.seed_folder / cell_recipe.clone.data)
    pipeline.run_command("clone", f"{cell_recipe.seed_folder}/clone", clone_policy.COMMAND, clone_config)
    refine_config = replace(cell_recipe.refine, policy=root / cell_recipe.seed_folder / cell_recipe.refine.policy)
    if first_cell is not None:  # before an hour is spent on it
        check_same_policy(
            first_cell,
            cell_recipe.refine.reward.rule,
            weights_digest(resolve_checkpoint(refine_config.policy, POLICY_DIR)),
        )
    pipeline.run_command(cell_recipe.refine.reward.rule, cell_recipe.name, refine_policy.COMMAND, refine_config)
    return asdict(read_cell(root / cell_recipe.name, refine_config))


def read_cell(folder: Path, refine_config: refine_policy.RefineCommand) -> CellResult:
    """The cell of a finished refinement. Where no model was asked, none has said anything."""
    rows, uses_model = read_rows(folder / PROGRESS_FILE), not refine_config.reward.uses_simulator_only
    metrics = next(iter(json.loads((folder / "metrics.json").read_text())["tasks"].values()))
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
        cumulative_episodes=tuple(np.cumsum([row["episodes"] for row in rows]).tolist()),
        seconds_by_phase=metrics["seconds"],
    )


def markdown_section(
    config: CompareConfig, comparison: Comparison, page: Path, num_versions: int, model_digest: str
) -> str:
    """The results as Markdown; `model`: digest of the one that pays."""
    model_name = "the bundled model" if config.checkpoint is None else f"`{config.checkpoint}`"
    lines = [
        f"## {config.name}",
        "",
        f"`embodied-rm compare`, {config.num_seeds} paired seeds, scored every {config.refine.reward.score_every} steps "
        "(what is paid from the simulator's state: every step), "
        f"{config.refine.env.num_envs} environments. Success by: who says in training that an episode succeeded, "
        f"which ends it; all numbers here are the simulator's. Rollouts: training episodes until {config.target_success:g} of "
        f"{config.refine.eval_episodes} watched episodes succeeded, median over the seeds, who never got there counting as "
        f"last; after 150 episodes: the first {config.refine.critic_warmup_iterations} iterations teach only the critic; "
        f"refined: {config.refine.final_eval_episodes} episodes of each seed; hovers: share of the last iteration's "
        f"episodes that end at the time limit, no success, with a potential of {HOVER_POTENTIAL:g} or more; agreement: Kendall's "
        "tau_a of the policies of all iterations, ranked by the model's verdicts and by the simulator's, where the "
        "model ends the episodes. p: paired permutation, one-sided; who never got there counts as if it had with its "
        "last episode, or with the one with which the other did. "
        f"Every cell as data: `{companion_path(page, config.name, '.jsonl').name}`, measured by {num_versions} "
        f"version{'s' * (num_versions > 1)} of the code.",
        "",
        f"![learning curves]({companion_path(page, config.name, '.png').name})",
        "",
        *markdown_tables(comparison.tables()),
        "",
        *preset_table({task: task_preset(config, task) for task in config.tasks}),
        "",
        f"Held to the imitated policy by {config.refine.bc_kl_coef:g}, falling to 0, and to its demonstrations by "
        f"{config.refine.imitation_coef:g}; guided by the potential by {config.refine.heuristic_coef:g}, falling to 0 "
        f"where episodes end at {config.refine.heuristic_off_at:g} of it on average, success counting as 1, and over the "
        f"whole refinement. The policies see "
        f"{config.clone.obs_mode}; the reward model: {model_name}, {model_digest[:12]}.",
    ]
    return "\n".join(lines)


COMMAND = Command(schema=CompareConfig, main=main)
