"""`embodied-rm compare`: reward rules side by side, each from the same cloned policies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from embodied_rm.cli.benchmarks import beside, machine, put_section
from embodied_rm.cli.command import Command
from embodied_rm.cli.commands import clone, collect, refine
from embodied_rm.cli.comparison import Cell, by_task, of_rule, summary
from embodied_rm.cli.comparison_page import Comparison
from embodied_rm.cli.ledger import Ledger, ledger_of
from embodied_rm.cli.places import reward_model_in
from embodied_rm.cli.sizes import TaskSizes, imitation, refinement
from embodied_rm.cli.stages import Stages
from embodied_rm.errors import UserError
from embodied_rm.models.checkpoint import digest_of
from embodied_rm.report import write_report
from embodied_rm.report.plot import plot_learning
from embodied_rm.rewards.rules import find_rule
from embodied_rm.rl.loop_stats import HOVER
from embodied_rm.rl.progress_rows import read_rows
from embodied_rm.rl.refine_checkpoint import PROGRESS
from embodied_rm.rl.reward_config import RewardConfig
from embodied_rm.run import Reporter, RunFolder
from sim.registry import make_task

OTHER = "other"
"""Key of the sizes of tasks that have none of their own."""


@dataclass(frozen=True, kw_only=True)
class CompareConfig:
    """Which rules on which tasks; paths are inside the run folder."""

    tasks: tuple[str, ...]
    rules: tuple[str, ...]
    seeds: int = 5
    level: float = 0.8
    checkpoint: Path | None = None
    name: str = "rules"
    page: Path | None = None
    sizes: dict[str, TaskSizes]
    collect: collect.CollectConfig
    clone: clone.CloneCommand
    refine: refine.RefineCommand

    def __post_init__(self) -> None:
        for task in self.tasks:
            make_task(task)
        for rule in self.rules:
            find_rule(rule)
        for name, many in (("tasks", self.tasks), ("rules", self.rules)):
            if len(set(many)) != len(many) or not many:
                raise UserError(f"{name} must name one or more, each once, got [{', '.join(many)}]")
        if self.seeds < 1:
            raise UserError(f"seeds must be >= 1, got {self.seeds}")
        if not 0 < self.level <= 1:
            raise UserError(f"level must be in (0, 1], got {self.level}")
        if self.refine.watched < 1:
            raise UserError("refine.watched must be >= 1: without learning curves nothing can be compared")


def start(config: CompareConfig, run: RunFolder, reporter: Reporter) -> None:
    """Refine every cell that is not finished; leave the numbers, the page and the report."""
    model = digest_of(reward_model_in(config.checkpoint))  # a missing one is told before anything is recorded
    stages, ledger = Stages(run, reporter), ledger_of(config.page, config.name)
    wanted = [recipe(config, *each) for each in product(range(config.seeds), config.tasks, config.rules)]
    cells = list(reporter.track(refined(wanted, model, stages, ledger), "cells", total=len(wanted)))
    told = Comparison(rules=config.rules, level=config.level, seeds=config.seeds, cells=cells)
    for task, some in by_task(cells).items():
        for rule in config.rules:
            reporter.table(f"{task}, {rule}", summary(of_rule(some, rule), config.level))
    run.write_json("metrics.json", {"machine": machine(), **told.numbers()})
    write_report(run.file("report.html"), told.story())
    if config.page is not None:
        plot_learning(beside(config.page, config.name, ".png"), told.bands(), config.level)
        text = section(config, told, config.page, ledger.versions([each.name for each in wanted]))
        put_section(config.page, f"compare {config.name}", text, title="Reward rules")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All that decides a cell but for the model. Its paths are inside the folders of its task and of its seed."""

    collect: collect.CollectConfig
    clone: clone.CloneCommand
    refine: refine.RefineCommand

    @property
    def seed_folder(self) -> str:
        """Where its policy is cloned."""
        return f"{self.refine.task}/{self.refine.seed}"

    @property
    def name(self) -> str:
        """What the ledger calls the cell, and its folder."""
        return f"{self.seed_folder}/{self.refine.reward.rule}"


def recipe(config: CompareConfig, seed: int, task: str, rule: str) -> Recipe:
    """How the cell of a task, a seed and a rule comes about."""
    sizes = config.sizes.get(task, config.sizes[OTHER])
    improve = refinement(config.refine, task, config.refine.policy, config.checkpoint, sizes)
    return Recipe(
        collect=replace(config.collect, tasks=(task,)),
        clone=replace(imitation(config.clone, task, config.clone.data, sizes, config.checkpoint), seed=seed),
        refine=replace(improve, seed=seed, reward=paid_by(rule, config.refine.reward)),
    )


def refined(wanted: Sequence[Recipe], model: str, stages: Stages, ledger: Ledger) -> Iterator[Cell]:
    """Cell by cell; what is finished, here or in the ledger, is only read. No cell knows of another but for the policy
    that it starts from. `model`: digest of the one that pays."""
    for each in wanted:
        decided = {**asdict(each), "model": model}
        decided["refine"]["checkpoint"] = decided["clone"]["checkpoint"] = None  # wherever it lies
        known = ledger.read(each.name, decided)
        cell = measured(each, stages) if known is None else Cell.from_json(known)
        if known is None:
            ledger.write(each.name, decided, asdict(cell))
        yield cell


def measured(each: Recipe, stages: Stages) -> Cell:
    """Record, clone and refine whatever of that is not finished."""
    home, task = stages.run.path, each.refine.task
    stages.command("collect", f"{task}/demonstrations", collect.COMMAND, each.collect)
    imitate = replace(each.clone, data=home / task / each.clone.data)
    stages.command("clone", f"{each.seed_folder}/clone", clone.COMMAND, imitate)
    improve = replace(each.refine, policy=home / each.seed_folder / each.refine.policy)
    stages.command(each.refine.reward.rule, each.name, refine.COMMAND, improve)
    return read(home / each.name, each.refine)


def paid_by(rule: str, reward: RewardConfig) -> RewardConfig:
    """The reward by a rule; what is paid from the simulator's state is also told its success."""
    success = "simulator" if find_rule(rule).by == "simulator" else reward.success
    return replace(reward, rule=rule, success=success)


def read(folder: Path, done: refine.RefineCommand) -> Cell:
    """The cell of a finished refinement."""
    rows = read_rows(folder / PROGRESS)
    told = next(iter(json.loads((folder / "metrics.json").read_text())["tasks"].values()))
    return Cell(
        task=done.task,
        seed=done.seed,
        rule=done.reward.rule,
        success=done.reward.success,
        cloned=told["cloned_success"],
        refined=told["refined_success"],
        curve=tuple(row["watched_success"] for row in rows),
        learned=tuple(row["learned_success"] for row in rows),
        hovers=tuple(row["hover_rate"] for row in rows),
        alarms=tuple(told["alarms"]),
        episodes=tuple(np.cumsum([row["episodes"] for row in rows]).tolist()),
        seconds=told["seconds"],
    )


def section(config: CompareConfig, told: Comparison, page: Path, versions: int) -> str:
    """The results as Markdown."""
    lines = [
        f"## {config.name}",
        "",
        f"`embodied-rm compare`, {config.seeds} paired seeds, scored every {config.refine.reward.score_every} steps, "
        f"{config.refine.world.num_envs} environments. Success by: who says in training that an episode succeeded, "
        f"which ends it; all numbers here are the simulator's. Rollouts: training episodes until {config.level:g} of "
        f"{config.refine.watched} watched episodes succeeded, median over the seeds, who never got there counting as "
        f"last; refined: {config.refine.episodes} episodes of each seed; hovers: share of the last iteration's "
        f"episodes that end at the time limit, no success, with a potential of {HOVER:g} or more; agreement: Kendall's "
        "tau_a of "
        "the policies of all iterations, ranked by the model's verdicts and by the simulator's. p: paired permutation, "
        "one-sided; who never got there counts as if it had at the end. "
        f"Every cell as data: `{beside(page, config.name, '.jsonl').name}`, measured by {versions} "
        f"version{'s' * (versions > 1)} of the code.",
        "",
        f"![learning curves]({beside(page, config.name, '.png').name})",
        "",
        *told.tables(),
    ]
    return "\n".join(lines)


COMMAND = Command(schema=CompareConfig, start=start)
