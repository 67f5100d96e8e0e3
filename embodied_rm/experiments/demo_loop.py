"""`embodied-rm demo`: the whole loop, a pipeline of the other commands."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from embodied_rm.cli import PROCESS_START_S
from embodied_rm.cli.commands import train
from embodied_rm.cli.console import format_duration
from embodied_rm.command import Command
from embodied_rm.data.dataset_path import DATASET_DIR
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.errors import UserError, lookup
from embodied_rm.experiments import evaluate_model
from embodied_rm.experiments.pipeline import Pipeline, peak_memory_gib
from embodied_rm.experiments.report_parts import episode_panels, headline_figures
from embodied_rm.experiments.task_presets import TaskPreset, preset_clone_config, preset_refine_config
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.paths import POLICY_DIR, model_label, resolve_reward_model
from embodied_rm.report import Report, write_report
from embodied_rm.rl.learner.policy import load_policy
from embodied_rm.rl.refine_checkpoint import PROGRESS_FILE
from embodied_rm.rl.throughput import measure_rollout
from embodied_rm.rl.watch.log_rows import read_rows
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.tabletop import clone_policy, collect_episodes, refine_policy
from embodied_rm.tabletop.envs import learner_device, make_envs
from embodied_rm.tabletop.refine_command import RefineCommand
from embodied_rm.tabletop.refine_report import learning_curves, success_row


@dataclass(frozen=True, kw_only=True)
class EvalDataConfig:
    """Episodes per task for the evaluation only."""

    num_successes: int
    num_failures: int


@dataclass(frozen=True, kw_only=True)
class DemonstrationDataConfig:
    """Episodes per task for the policies to imitate: few, at full speed, with little noise."""

    num_successes: int
    action_noise: float
    speed_range: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class DemoConfig:
    """Config of `demo`; paths of the commands are relative to the run folder."""

    tasks: tuple[str, ...]
    checkpoint: Path | None = None
    train_reward_model: bool = False
    benchmark_steps: int
    eval_data: EvalDataConfig
    demonstration_data: DemonstrationDataConfig
    task_presets: dict[str, TaskPreset]
    collect: collect_episodes.CollectConfig
    train: train.TrainCommand
    evaluate: evaluate_model.EvaluateConfig
    clone: clone_policy.CloneCommand
    refine: RefineCommand

    def __post_init__(self) -> None:
        for task in self.tasks:
            lookup(self.task_presets, task, "task of the demo")
            if task not in self.collect.tasks:
                raise UserError(f"collect.tasks must include all tasks: {task} is missing")
        if self.evaluate.data is None:
            raise UserError(
                "evaluate.data must be a folder inside the run folder: the demo evaluates on its own recordings"
            )
        if self.train_reward_model and self.checkpoint is not None:
            raise UserError("train_reward_model=true and checkpoint=... both select the reward model: set one of them")
        for command in ("evaluate", "refine"):
            if getattr(self, command).checkpoint is not None:
                raise UserError(
                    f"{command}.checkpoint is set by checkpoint=... or train_reward_model=true: leave it out"
                )

    def eval_folder(self, root: Path) -> Path:
        """Return the folder of the episodes for evaluation."""
        assert self.evaluate.data is not None
        return root / self.evaluate.data

    def model_folder(self, root: Path) -> Path | None:
        """Return the folder of the reward model, None for the bundled one."""
        return root / "reward_model" if self.train_reward_model else self.checkpoint


def main(config: DemoConfig, run: RunFolder, reporter: Reporter) -> None:
    """Run the loop; write the metrics of all commands and the report."""
    pipeline, startup_s = Pipeline(run, reporter), time.monotonic() - PROCESS_START_S
    if not config.train_reward_model:
        resolve_reward_model(config.checkpoint)  # fails early if it is missing
    metrics = prepare_reward_model(config, pipeline)
    metrics["tasks"] = {task: clone_and_refine(task, config, pipeline) for task in config.tasks}
    if config.benchmark_steps:
        with pipeline.time_phase("benchmark"):
            metrics["benchmark"] = measure_speed(config, run)
        reporter.table("benchmark", metrics["benchmark"])
    with pipeline.time_phase("report"):
        report = build_report(config, metrics, run, startup_s + pipeline.total_seconds)
        write_report(run.file_path("report.html"), report)
    total_s = startup_s + pipeline.total_seconds
    metrics["seconds"] = {"startup": startup_s, **pipeline.seconds_by_phase, "total": total_s}
    metrics["memory"] = {"peak_gib": peak_memory_gib()}
    reporter.table("seconds", metrics["seconds"])
    run.write_json("metrics.json", metrics)


def prepare_reward_model(config: DemoConfig, pipeline: Pipeline) -> dict[str, Any]:
    """Record, train if `train_reward_model` is set, and evaluate on unseen episodes; return the metrics."""
    root = pipeline.run.path
    record_data(config, pipeline)
    train_metrics = train_model(config, pipeline) if config.train_reward_model else {}
    evaluate_config = replace(config.evaluate, data=config.eval_folder(root), checkpoint=config.model_folder(root))
    return {**train_metrics, **pipeline.run_command("evaluate", "evaluation", evaluate_model.COMMAND, evaluate_config)}


def record_data(config: DemoConfig, pipeline: Pipeline) -> None:
    """Record the episodes for evaluation and for cloning, with other seeds than the training episodes."""
    eval_config = replace(config.collect, **vars(config.eval_data), seed=config.collect.seed + 1)
    pipeline.run_command("collect", "unseen", collect_episodes.COMMAND, eval_config)
    # frame_stride=1 because a policy acts at every control step.
    collect = replace(config.collect, num_failures=0, frame_stride=1, tasks=config.tasks, seed=config.collect.seed + 2)
    demo_config = replace(collect, **vars(config.demonstration_data))
    pipeline.run_command("collect", "demonstrations", collect_episodes.COMMAND, demo_config)


def train_model(config: DemoConfig, pipeline: Pipeline) -> dict[str, Any]:
    """Record episodes and train a reward model on them; return the metrics."""
    root = pipeline.run.path
    collect_metrics = pipeline.run_command("collect", "data", collect_episodes.COMMAND, config.collect)
    held_out = None if config.train.held_out is None else root / config.train.held_out
    train_config = replace(config.train, data=root / config.train.data, held_out=held_out)
    return {**collect_metrics, **pipeline.run_command("train", "reward_model", train.COMMAND, train_config)}


def clone_and_refine(task: str, config: DemoConfig, pipeline: Pipeline) -> dict[str, Any]:
    """Clone and refine the policy of one task; return the metrics of the refinement."""
    root, preset = pipeline.run.path, config.task_presets[task]
    model, policy = config.model_folder(root), root / task / config.refine.policy
    clone_config = preset_clone_config(config.clone, task, root / config.clone.data, preset, model)
    pipeline.run_command("clone", f"{task}/clone", clone_policy.COMMAND, clone_config)
    refine_config = preset_refine_config(config.refine, task, policy, model, preset)
    return pipeline.run_command("refine", f"{task}/refine", refine_policy.COMMAND, refine_config)["tasks"][task]


def measure_speed(config: DemoConfig, run: RunFolder) -> dict[str, Any]:
    """Measure the throughput of a rollout with the learned reward on the first task."""
    task = config.tasks[0]
    net = load_progress_net(resolve_reward_model(config.model_folder(run.path)))
    policy = load_policy(run.path / task / "clone" / POLICY_DIR)
    envs = make_envs(task, config.refine.env, ends_on_success=False)
    try:
        device = learner_device(config.refine.env)
        return measure_rollout(envs, net.to(device), policy.to(device), config.benchmark_steps)
    finally:
        envs.close()


def build_report(config: DemoConfig, metrics: dict[str, Any], run: RunFolder, seconds: float) -> Report:
    """Return the report: metrics of the reward model, success of the policies, and example episodes.

    `seconds` is the total time of the loop.
    """
    net = load_progress_net(resolve_reward_model(config.model_folder(run.path)))
    eval_data = open_dataset(config.eval_folder(run.path) / DATASET_DIR)
    curves = [learning_curves(task, read_rows(run.path / task / "refine" / PROGRESS_FILE)) for task in config.tasks]
    return Report(
        title="From video and a sentence to a better policy",
        subtitle=f"Reward model: {model_origin(config, metrics)}; cloned policies are refined on its reward only. "
        f"{format_duration(seconds)} in total.",
        key_metrics=headline_figures(metrics[config.evaluate.model_name], metrics["baselines"]),
        success_rates=tuple(success_row(task, numbers) for task, numbers in metrics["tasks"].items()),
        charts=tuple(curve for task_curves in curves for curve in task_curves),
        episodes=episode_panels(net, eval_data, config.evaluate.report_episodes),
        details={**metrics.get("train", {}), **metrics.get("benchmark", {})},
    )


def model_origin(config: DemoConfig, metrics: dict[str, Any]) -> str:
    """Describe the origin of the reward model."""
    if config.train_reward_model:
        return f"learned from {metrics['train']['episodes']} recorded episodes and their instructions"
    return f"{model_label(config.checkpoint)}, nothing trained"


COMMAND = Command(resumable=True, schema=DemoConfig, main=main)
