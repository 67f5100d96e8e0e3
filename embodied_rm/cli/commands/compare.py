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

from embodied_rm.cli.benchmarks import beside, machine, put_section
from embodied_rm.cli.command import Command
from embodied_rm.cli.commands import clone, collect, refine
from embodied_rm.cli.comparison import Cell, by_task, of_rule, refuse_stranger, summary
from embodied_rm.cli.comparison_page import Comparison, markdown
from embodied_rm.cli.ledger import Ledger, begun_in, ledger_of
from embodied_rm.cli.places import POLICY, checkpoint_in, reward_model_in
from embodied_rm.cli.recipe import Recipe, paid_by
from embodied_rm.cli.sizes import TaskSizes, imitation, refinement, sized
from embodied_rm.cli.stages import Stages
from embodied_rm.errors import UserError
from embodied_rm.models.checkpoint import digest_of, judging_digest
from embodied_rm.models.judges.config import identity
from embodied_rm.report import write_report
from embodied_rm.report.plot import plot_learning
from embodied_rm.rewards.rules import find_rule
from embodied_rm.rl.envs.loop_stats import HOVER
from embodied_rm.rl.refine_checkpoint import PROGRESS
from embodied_rm.rl.watch.progress_rows import read_rows
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
        for task in self.tasks:
            self._refuse_sizes(task)

    def _refuse_sizes(self, task: str) -> None:
        """Raises `UserError` for what a cell of the task would stumble over after hours."""
        sizes = sizes_of(self, task)
        if sizes.demonstrations > self.collect.successes:
            raise UserError(
                f"{task}: {sizes.demonstrations} demonstrations asked for, and collect.successes="
                f"{self.collect.successes} are recorded"
            )
        for rule in self.rules:
            limit = make_task(task).max_episode_steps
            paid_by(rule, self.refine.reward).refuse_rollouts(sizes.rollout_steps, limit)


def start(config: CompareConfig, run: RunFolder, reporter: Reporter) -> None:
    """Refine every cell that is not finished; leave the numbers, the page and the report."""
    judge = config.refine.judge
    model = judging_digest(reward_model_in(config.checkpoint)) if judge.layout is None else identity(judge)
    for rule in config.rules:  # what cannot judge is told before anything is recorded
        paid = paid_by(rule, config.refine.reward)
        refine.paying_model(replace(config.refine, checkpoint=config.checkpoint, reward=paid))
    stages, ledger = Stages(run, reporter), ledger_of(config.page, config.name)
    wanted = [recipe(config, *each) for each in product(range(config.seeds), config.tasks, config.rules)]
    cells = list(reporter.track(refined(wanted, model, stages, ledger), "cells", total=len(wanted)))
    told = Comparison(rules=config.rules, level=config.level, seeds=config.seeds, cells=cells)
    for task, some in by_task(cells).items():
        for rule in config.rules:
            reporter.table(f"{task}, {rule}", summary(of_rule(some, rule), config.level))
    run.write_json("metrics.json", {"machine": machine(), **told.numbers()})
    write_report(run.file("report.html"), told.story())
    plot_learning(run.file("learning.png"), told.bands(), config.level)
    if config.page is not None:
        plot_learning(beside(config.page, config.name, ".png"), told.bands(), config.level)
        text = section(config, told, config.page, ledger.versions([each.name for each in wanted]), model)
        put_section(config.page, f"compare {config.name}", text, title="Reward rules")


def sizes_of(config: CompareConfig, task: str) -> TaskSizes:
    """Those of a task, or of any other."""
    return config.sizes.get(task, config.sizes[OTHER])


def recipe(config: CompareConfig, seed: int, task: str, rule: str) -> Recipe:
    """How the cell of a task, a seed and a rule comes about. A policy that sees pictures is recorded for and cloned
    from the views that it is refined with."""
    sizes = sizes_of(config, task)
    show = replace(config.collect, tasks=(task,), seed=config.collect.seed + seed)
    imitate = replace(imitation(config.clone, task, config.clone.data, sizes, config.checkpoint), seed=seed)
    improve = refinement(config.refine, task, config.refine.policy, config.checkpoint, sizes)
    if config.clone.sees != "state":
        eyes = config.refine.world.views
        show = replace(show, world=replace(show.world, views=eyes))
        imitate = replace(imitate, world=replace(imitate.world, views=eyes))
    paid = paid_by(rule, config.refine.reward)
    return Recipe(collect=show, clone=imitate, refine=replace(improve, seed=seed, reward=paid))


def refined(wanted: Sequence[Recipe], model: str, stages: Stages, ledger: Ledger) -> Iterator[Cell]:
    """Cell by cell; what is finished, here or in the ledger, is only read. No cell knows of another but for the policy
    that it starts from, which is that of all cells of a task and a seed. `model`: digest of the one that pays."""
    home, first = stages.run.path, dict[str, Cell]()
    for each in wanted:
        policy, decided = each.decided(model)
        measure = partial(measured, each, policy, stages, first.get(each.seed_folder))
        cell = Cell.from_json(ledger.cell(each.name, decided, home / each.name, measure))
        refuse_stranger(first.setdefault(each.seed_folder, cell), cell.rule, cell.policy)
        yield cell


def measured(each: Recipe, policy: Mapping[str, Any], stages: Stages, known: Cell | None) -> dict[str, Any]:
    """Record, clone and refine whatever of that is not finished; `policy`: what decides the cloned one, `known`: a cell
    that must have begun with it."""
    home = stages.run.path
    begun_in(home / each.seed_folder, policy)
    stages.command("collect", f"{each.seed_folder}/demonstrations", collect.COMMAND, each.collect)
    imitate = replace(each.clone, data=home / each.seed_folder / each.clone.data)
    stages.command("clone", f"{each.seed_folder}/clone", clone.COMMAND, imitate)
    improve = replace(each.refine, policy=home / each.seed_folder / each.refine.policy)
    if known is not None:  # before an hour is spent on it
        refuse_stranger(known, each.refine.reward.rule, digest_of(checkpoint_in(improve.policy, POLICY)))
    stages.command(each.refine.reward.rule, each.name, refine.COMMAND, improve)
    return asdict(read(home / each.name, improve))


def read(folder: Path, done: refine.RefineCommand) -> Cell:
    """The cell of a finished refinement. Where no model was asked, none has said anything."""
    rows, asked = read_rows(folder / PROGRESS), not done.reward.of_simulator
    told = next(iter(json.loads((folder / "metrics.json").read_text())["tasks"].values()))
    hovers = asked or find_rule(done.reward.rule).by == "simulator"
    return Cell(
        task=make_task(done.task).name,
        seed=done.seed,
        rule=done.reward.rule,
        success=done.reward.success,
        policy=digest_of(checkpoint_in(done.policy, POLICY)),
        cloned=told["cloned_success"],
        refined=told["refined_success"],
        curve=tuple(row["watched_success"] for row in rows),
        learned=tuple(row["learned_success"] if asked else None for row in rows),
        hovers=tuple(row["hover_rate"] if hovers else None for row in rows),
        alarms=tuple(told["alarms"]),
        episodes=tuple(np.cumsum([row["episodes"] for row in rows]).tolist()),
        seconds=told["seconds"],
    )


def section(config: CompareConfig, told: Comparison, page: Path, versions: int, model: str) -> str:
    """The results as Markdown; `model`: digest of the one that pays."""
    paid = "the model in the box" if config.checkpoint is None else f"`{config.checkpoint}`"
    lines = [
        f"## {config.name}",
        "",
        f"`embodied-rm compare`, {config.seeds} paired seeds, scored every {config.refine.reward.score_every} steps "
        "(what is paid from the simulator's state: every step), "
        f"{config.refine.world.num_envs} environments. Success by: who says in training that an episode succeeded, "
        f"which ends it; all numbers here are the simulator's. Rollouts: training episodes until {config.level:g} of "
        f"{config.refine.watched} watched episodes succeeded, median over the seeds, who never got there counting as "
        f"last; after 150 episodes: the first {config.refine.warmup_iterations} iterations teach only the critic; "
        f"refined: {config.refine.episodes} episodes of each seed; hovers: share of the last iteration's "
        f"episodes that end at the time limit, no success, with a potential of {HOVER:g} or more; agreement: Kendall's "
        "tau_a of the policies of all iterations, ranked by the model's verdicts and by the simulator's, where the "
        "model ends the episodes. p: paired permutation, one-sided; who never got there counts as if it had with its "
        "last episode, or with the one with which the other did. "
        f"Every cell as data: `{beside(page, config.name, '.jsonl').name}`, measured by {versions} "
        f"version{'s' * (versions > 1)} of the code.",
        "",
        f"![learning curves]({beside(page, config.name, '.png').name})",
        "",
        *markdown(told.tables()),
        "",
        *sized({task: sizes_of(config, task) for task in config.tasks}),
        "",
        f"Held to the imitated policy by {config.refine.reference_coef:g}, falling to 0, and to its demonstrations by "
        f"{config.refine.imitation_coef:g}; guided by the potential by {config.refine.guidance:g}, falling to 0 "
        f"where episodes end at {config.refine.guided_until:g} of it on average, success counting as 1, and over the "
        f"whole refinement. The policies see "
        f"{config.clone.sees}; the reward model: {paid}, {model[:12]}.",
    ]
    return "\n".join(lines)


COMMAND = Command(schema=CompareConfig, start=start)
