"""`embodied-rm demo`: the whole loop, by running the other commands one after the other."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from embodied_rm.cli import STARTED
from embodied_rm.cli.command import Command
from embodied_rm.cli.commands import clone, collect, evaluate, refine, train
from embodied_rm.cli.console import clock
from embodied_rm.cli.places import DATASET, POLICY, reward_model_in, spoken_model
from embodied_rm.cli.reports import figures, learning_curves, panels, success_row
from embodied_rm.cli.sizes import TaskSizes, imitation, refinement
from embodied_rm.cli.stages import Stages, peak_memory_gib
from embodied_rm.cli.worlds import learner_device, make_worlds
from embodied_rm.data.catalog import open_data
from embodied_rm.errors import UserError, lookup
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.report import Report, write_report
from embodied_rm.rl.learner.policy import load_policy
from embodied_rm.rl.refine_checkpoint import PROGRESS
from embodied_rm.rl.throughput import measure_rollout
from embodied_rm.rl.watch.progress_rows import read_rows
from embodied_rm.run import Reporter, RunFolder


@dataclass(frozen=True, kw_only=True)
class Unseen:
    """Episodes of each task that only the evaluation sees."""

    successes: int
    failures: int


@dataclass(frozen=True, kw_only=True)
class Demonstrations:
    """Episodes of each task that the policies imitate: few, at full pace, with little noise."""

    successes: int
    noise: float
    pace: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class DemoConfig:
    """The commands of the loop; paths are inside the run folder."""

    tasks: tuple[str, ...]
    checkpoint: Path | None = None
    own_model: bool = False
    benchmark_steps: int
    unseen: Unseen
    demonstrations: Demonstrations
    sizes: dict[str, TaskSizes]
    collect: collect.CollectConfig
    train: train.TrainCommand
    evaluate: evaluate.EvaluateConfig
    clone: clone.CloneCommand
    refine: refine.RefineCommand

    def __post_init__(self) -> None:
        for task in self.tasks:
            lookup(self.sizes, task, "task of the demo")
            if task not in self.collect.tasks:
                raise UserError(f"collect.tasks must have every one of tasks: nothing would be known of {task}")
        if self.evaluate.data is None:
            raise UserError("evaluate.data must be a folder inside the run folder: the demo judges by what it recorded")
        if self.own_model and self.checkpoint is not None:
            raise UserError("own_model=true and checkpoint=... both say which reward model: say one of them")
        for command in ("evaluate", "refine"):
            if getattr(self, command).checkpoint is not None:
                raise UserError(f"{command}.checkpoint is decided by checkpoint=... or own_model=true: leave it out")

    def judged_by(self, root: Path) -> Path:
        """The folder of the episodes that the reward model is judged by."""
        assert self.evaluate.data is not None
        return root / self.evaluate.data

    def model(self, root: Path) -> Path | None:
        """The folder of the reward model, None for the one in the box."""
        return root / "reward_model" if self.own_model else self.checkpoint


def start(config: DemoConfig, run: RunFolder, reporter: Reporter) -> None:
    """Run the loop; leave the numbers of all stages in metrics.json and the story in report.html."""
    stages, began = Stages(run, reporter), time.monotonic() - STARTED
    if not config.own_model:
        reward_model_in(config.checkpoint)  # a missing one is told before anything is recorded
    metrics = know_reward(config, stages)
    metrics["tasks"] = {task: refine_policy(task, config, stages) for task in config.tasks}
    if config.benchmark_steps:
        with stages.timed("benchmark"):
            metrics["benchmark"] = benchmark(config, run)
        reporter.table("benchmark", metrics["benchmark"])
    with stages.timed("report"):
        write_report(run.file("report.html"), story(config, metrics, run, began + stages.total))
    metrics["seconds"] = {**stages.seconds, "total": began + stages.total}
    metrics["memory"] = {"peak_gib": peak_memory_gib()}
    reporter.table("seconds", metrics["seconds"])
    run.write_json("metrics.json", metrics)


def know_reward(config: DemoConfig, stages: Stages) -> dict[str, Any]:
    """Record, train if the model is to be one's own, and evaluate on unseen episodes; the numbers of all that."""
    root = stages.run.path
    record(config, stages)
    learned = learn_reward(config, stages) if config.own_model else {}
    judging = replace(config.evaluate, data=config.judged_by(root), checkpoint=config.model(root))
    return {**learned, **stages.command("evaluate", "evaluation", evaluate.COMMAND, judging)}


def record(config: DemoConfig, stages: Stages) -> None:
    """The episodes that judge the reward model, and those that the policies imitate.

    Their seeds are not those of the episodes to learn from: the very same would otherwise be recorded twice.
    """
    unseen = replace(config.collect, **vars(config.unseen), seed=config.collect.seed + 1)
    stages.command("collect", "unseen", collect.COMMAND, unseen)
    # At every control step, whatever the reward model is trained on: a policy acts at every step.
    shown = replace(
        config.collect,
        **vars(config.demonstrations),
        failures=0,
        every=1,
        tasks=config.tasks,
        seed=config.collect.seed + 2,
    )
    stages.command("collect", "demonstrations", collect.COMMAND, shown)


def learn_reward(config: DemoConfig, stages: Stages) -> dict[str, Any]:
    """Record episodes to learn from and train; the numbers of both."""
    root = stages.run.path
    seen = stages.command("collect", "data", collect.COMMAND, config.collect)
    held_out = None if config.train.held_out is None else root / config.train.held_out
    training = replace(config.train, data=root / config.train.data, held_out=held_out)
    return {**seen, **stages.command("train", "reward_model", train.COMMAND, training)}


def refine_policy(task: str, config: DemoConfig, stages: Stages) -> dict[str, Any]:
    """Clone and refine the policy of one task; the numbers of its refinement."""
    root, sizes = stages.run.path, config.sizes[task]
    imitate = imitation(config.clone, task, root / config.clone.data, sizes, config.model(root))
    stages.command("clone", f"{task}/clone", clone.COMMAND, imitate)
    improve = refinement(config.refine, task, root / task / config.refine.policy, config.model(root), sizes)
    return stages.command("refine", f"{task}/refine", refine.COMMAND, improve)["tasks"][task]


def benchmark(config: DemoConfig, run: RunFolder) -> dict[str, Any]:
    """What the learned reward costs on every step of the first task's worlds."""
    task = config.tasks[0]
    net = load_progress_net(reward_model_in(config.model(run.path)))
    policy = load_policy(run.path / task / "clone" / POLICY)
    worlds = make_worlds(task, config.refine.world, ends_on_success=False)
    try:
        device = learner_device(config.refine.world)
        return measure_rollout(worlds, net.to(device), policy.to(device), config.benchmark_steps)
    finally:
        worlds.close()


def story(config: DemoConfig, metrics: dict[str, Any], run: RunFolder, seconds: float) -> Report:
    """The page: what the reward model knows, what it made of the policies, and episodes to look at; `seconds`: spent
    on all that."""
    net = load_progress_net(reward_model_in(config.model(run.path)))
    unseen = open_data(config.judged_by(run.path) / DATASET)
    curves = [learning_curves(task, read_rows(run.path / task / "refine" / PROGRESS)) for task in config.tasks]
    return Report(
        title="From video and a sentence to a better policy",
        subtitle=f"Reward model: {origin(config, metrics)}; cloned policies refined on its reward alone, never on "
        "the simulator's. "
        f"{clock(seconds)} in all.",
        figures=figures(metrics[config.evaluate.name], metrics["baselines"]),
        success=tuple(success_row(task, numbers) for task, numbers in metrics["tasks"].items()),
        curves=tuple(curve for pair in curves for curve in pair),
        panels=panels(net, unseen, config.evaluate.shown),
        details={**metrics.get("train", {}), **metrics.get("benchmark", {})},
    )


def origin(config: DemoConfig, metrics: dict[str, Any]) -> str:
    """Where the reward model is from, in words."""
    if config.own_model:
        return f"learned from {metrics['train']['episodes']} recorded episodes and their instructions"
    return f"{spoken_model(config.checkpoint)}, nothing trained"


COMMAND = Command(schema=DemoConfig, start=start)
