"""`embodied-rm demo`: the whole loop, by running the other commands one after the other."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from embodied_rm.cli import STARTED
from embodied_rm.cli.command import Command
from embodied_rm.cli.commands import clone, collect, evaluate, refine, train
from embodied_rm.cli.console import clock
from embodied_rm.cli.places import DATASET, POLICY, REWARD_MODEL
from embodied_rm.cli.reports import figures, learning_curves, panels, success_row
from embodied_rm.cli.stages import Stages, peak_memory_gib
from embodied_rm.cli.worlds import learner_device, make_worlds
from embodied_rm.data.catalog import open_data
from embodied_rm.errors import UserError, lookup
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.report import Report, write_report
from embodied_rm.rl.policy import load_policy
from embodied_rm.rl.refine import PROGRESS
from embodied_rm.rl.throughput import measure_rollout
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
class TaskSizes:
    """What differs between the tasks; takes the place of what `clone` and `refine` say."""

    demonstrations: int
    rollout_steps: int
    iterations: int
    log_std_init: float
    gamma: float
    gae_lambda: float


@dataclass(frozen=True, kw_only=True)
class DemoConfig:
    """The commands of the loop; paths are inside the run folder."""

    tasks: tuple[str, ...]
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
                raise UserError(f"collect.tasks must have every one of tasks: the reward model would not know {task}")
        if self.evaluate.data is None:
            raise UserError("evaluate.data must be a folder inside the run folder: the demo judges by what it recorded")

    def judged_by(self, root: Path) -> Path:
        """The folder of the episodes that the reward model is judged by."""
        assert self.evaluate.data is not None
        return root / self.evaluate.data


def start(config: DemoConfig, run: RunFolder, reporter: Reporter) -> None:
    """Run the loop; leave the numbers of all stages in metrics.json and the story in report.html."""
    stages = Stages(run, reporter)
    metrics = learn_reward(config, stages)
    metrics["tasks"] = {task: refine_policy(task, config, stages) for task in config.tasks}
    if config.benchmark_steps:
        with stages.timed("benchmark"):
            metrics["benchmark"] = benchmark(config, run)
        reporter.table("benchmark", metrics["benchmark"])
    with stages.timed("report"):
        write_report(run.file("report.html"), story(config, metrics, run))
    metrics["seconds"] = {**stages.seconds, "total": time.monotonic() - STARTED}
    metrics["memory"] = {"peak_gib": peak_memory_gib()}
    reporter.table("seconds", metrics["seconds"])
    run.write_json("metrics.json", metrics)


def learn_reward(config: DemoConfig, stages: Stages) -> dict[str, Any]:
    """Record, train, and evaluate on unseen episodes; the numbers of all three."""
    root = stages.run.path
    seen = stages.command("collect", "data", collect.COMMAND, config.collect)
    # Seeds of their own: the very episodes would otherwise be recorded twice.
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
    held_out = None if config.train.held_out is None else root / config.train.held_out
    training = replace(config.train, data=root / config.train.data, held_out=held_out)
    trained = stages.command("train", "reward_model", train.COMMAND, training)
    judging = replace(config.evaluate, data=config.judged_by(root), checkpoint=root / config.evaluate.checkpoint)
    judged = stages.command("evaluate", "evaluation", evaluate.COMMAND, judging)
    return {**seen, **trained, **judged}


def refine_policy(task: str, config: DemoConfig, stages: Stages) -> dict[str, Any]:
    """Clone and refine the policy of one task; the numbers of its refinement."""
    root, sizes = stages.run.path, config.sizes[task]
    imitation = replace(
        config.clone,
        task=task,
        data=root / config.clone.data,
        demonstrations=sizes.demonstrations,
        log_std_init=sizes.log_std_init,
    )
    stages.command("clone", f"{task}/clone", clone.COMMAND, imitation)
    refinement = replace(
        config.refine,
        task=task,
        policy=root / task / config.refine.policy,
        checkpoint=root / config.refine.checkpoint,
        rollout_steps=sizes.rollout_steps,
        iterations=sizes.iterations,
        ppo=replace(config.refine.ppo, gamma=sizes.gamma, gae_lambda=sizes.gae_lambda),
    )
    return stages.command("refine", f"{task}/refine", refine.COMMAND, refinement)["tasks"][task]


def benchmark(config: DemoConfig, run: RunFolder) -> dict[str, Any]:
    """What the learned reward costs on every step of the first task's worlds."""
    task = config.tasks[0]
    net = load_progress_net(run.path / config.refine.checkpoint / REWARD_MODEL)
    policy = load_policy(run.path / task / "clone" / POLICY)
    worlds = make_worlds(task, config.refine.world, ends_on_success=False)
    try:
        device = learner_device(config.refine.world)
        return measure_rollout(worlds, net.to(device), policy.to(device), config.benchmark_steps)
    finally:
        worlds.close()


def story(config: DemoConfig, metrics: dict[str, Any], run: RunFolder) -> Report:
    """The page: what the reward model knows, what it made of the policies, and episodes to look at."""
    net = load_progress_net(run.path / config.evaluate.checkpoint / REWARD_MODEL)
    unseen = open_data(config.judged_by(run.path) / DATASET)
    curves = [learning_curves(task, rows(run.path / task / "refine" / PROGRESS)) for task in config.tasks]
    return Report(
        title="From video and a sentence to a better policy",
        subtitle=f"A reward model learned from {metrics['train']['episodes']} recorded episodes and their "
        "instructions; cloned policies refined on that reward alone, never on the simulator's. "
        f"{clock(time.monotonic() - STARTED)} in all.",
        figures=figures(metrics[config.evaluate.name], metrics["baselines"]),
        success=tuple(success_row(task, numbers) for task, numbers in metrics["tasks"].items()),
        curves=tuple(curve for pair in curves for curve in pair),
        panels=panels(net, unseen, config.evaluate.shown),
        details={**metrics["train"], **metrics.get("benchmark", {})},
    )


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON-lines file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


COMMAND = Command(schema=DemoConfig, start=start)
