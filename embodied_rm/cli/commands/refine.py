"""`embodied-rm refine`: PPO from an imitated policy on a learned reward, judged by the simulator."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from gymnasium.vector import VectorEnv

from embodied_rm.cli.command import Command, narrow
from embodied_rm.cli.places import POLICY, checkpoint_in, imitated_in, reward_model_in
from embodied_rm.cli.reports import learning_curves, success_row, task_metrics
from embodied_rm.cli.worlds import WorldConfig, learner_device, make_check, make_judge, make_worlds, shown
from embodied_rm.data.filming import Filming
from embodied_rm.errors import UserError, lookup
from embodied_rm.fusion import Fusion
from embodied_rm.group import Group, joined
from embodied_rm.models.base import Judge, Retrospective
from embodied_rm.models.checkpoint import digest_of, load_progress_net
from embodied_rm.models.judges.catalog import open_judge
from embodied_rm.models.judges.config import JudgeConfig, identity
from embodied_rm.models.judges.served import ServedModel
from embodied_rm.models.judges.shuffled import OFFLINE
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.report import Report, write_report
from embodied_rm.rl.learner.imitation import Pairs, load_pairs
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec, load_policy
from embodied_rm.rl.refine import Evaluate, Refined, refine
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.run import Reporter, RunFolder
from embodied_rm.score import Scorer
from embodied_rm.score.background import BackgroundScorer, LabellingConfig
from sim.registry import make_task

WITHOUT_GOAL: dict[str, Fusion] = {
    "incremental": "incremental", "forward": "forward", "least": "least", "mean": "mean", "precise": "precise"
}  # fmt: skip
"""Fusions that need neither a goal picture nor a reference: there is none in refinement."""
LABELLED = "labelled"
"""In the run folder: films and what the labeller said of them."""
NEEDY = ("backward", "reference")
"""Those that cannot do without."""


@dataclass(frozen=True, kw_only=True)
class RefineCommand(RefineConfig):
    """Refinement of a stored policy on a stored reward model."""

    task: str
    policy: Path
    checkpoint: Path | None = None
    fusion: str | None = None
    episodes: int = 200
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    labeller: JudgeConfig = field(default_factory=JudgeConfig)
    """Who labels films of the training, for another model to learn from; nobody is paid by it."""
    labelling: LabellingConfig = field(default_factory=LabellingConfig)
    world: WorldConfig = field(default_factory=WorldConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fusion is not None:
            lookup(WITHOUT_GOAL, self.fusion, "fusion")


def start(config: RefineCommand, run: RunFolder, reporter: Reporter) -> None:
    """Refine, judge, and leave policy, metrics and report in the run folder."""
    task = make_task(config.task).name
    policy = load_policy(checkpoint_in(config.policy, POLICY))
    refuse_other_eyes(policy.spec, reward_model_in(config.checkpoint), config)
    demonstrations = load_pairs(imitated_in(config.policy)) if config.imitation_coef else None
    device = learner_device(config.world)
    policy, model = policy.to(device), on_device(paying_model(config), device)
    eyes = None if policy.spec.sees == "state" else eyes_of(config, model).to(device)
    with joined(config.world.device) as group, labels_of(config, run, group) as labels:
        done = refine_task(config, policy, model, eyes, demonstrations, run, reporter, group, labels)
        if labels is not None:
            labels.finish(reporter)
    if group.rank:
        return
    metrics = task_metrics(done)
    if labels is not None:
        metrics |= {"films_labelled": len(labels), "films_dropped": labels.dropped}
    reporter.table(f"refined {task}", metrics)
    report = Report(
        title=f"Refinement of {task}",
        subtitle=f"PPO by reward.rule={config.reward.rule}; success in training is said by the "
        f"{config.reward.success}, before, after and of the watched episodes by the simulator.",
        success=(success_row(task, metrics),),
        curves=learning_curves(task, done.rows),
    )
    write_report(run.file("report.html"), report)
    run.write_json("metrics.json", {"tasks": {task: metrics}})


def labels_of(config: RefineCommand, run: RunFolder, group: Group) -> AbstractContextManager[BackgroundScorer | None]:
    """Who labels films of the first process's worlds beside the training, if anybody does."""
    if config.labeller.layout is None or group.rank:
        return nullcontext()
    scorer = Scorer(model=open_judge(config.labeller))
    return BackgroundScorer(scorer, run.path / LABELLED, config.labelling, identity(config.labeller))


def on_device(model: Judge, device: torch.device) -> Judge:
    """The model there; a judge of other people's is where `judge.device` put it."""
    return model.to(device) if isinstance(model, ProgressNet) else model


def eyes_of(config: RefineCommand, model: Judge) -> ProgressNet:
    """Through whose eyes a policy sees: the model that pays, or where a judge does, the checkpoint."""
    return model if isinstance(model, ProgressNet) else load_progress_net(reward_model_in(config.checkpoint))


def paying_model(config: RefineCommand) -> Judge:
    """The reward model, fused as it is asked to be, or the judge in its place. Raises `UserError` where it is to judge
    and does not know a camera, or needs what no refinement has."""
    if config.judge.layout is not None:
        if config.fusion is not None:
            raise UserError(f"fusion is for a checkpoint of this package, not for judge={config.judge.layout}")
        judge = open_judge(config.judge)
        if isinstance(judge, Retrospective):
            raise UserError(OFFLINE)
        config.reward.refuse_silence(judge.tells_success)
        known, shown = judge.sight.views or (), config.world.views
        if isinstance(judge, ServedModel):
            known, shown = shown if judge.sight.views else (), known  # it is content with some of those that it knows
        for view in known:
            lookup(dict.fromkeys(shown), view, "view, of the worlds and the judge")
        return judge
    folder = reward_model_in(config.checkpoint)
    model = load_progress_net(folder)
    if config.fusion is not None:
        model = model.fused_by(WITHOUT_GOAL[config.fusion])
    if config.reward.of_simulator:
        return model
    if model.config.fusion in NEEDY:
        raise UserError(
            f"{folder} has fusion={model.config.fusion}, which needs a goal picture or a demonstration, and there is "
            f"none in refinement: set fusion to one of {', '.join(WITHOUT_GOAL)}"
        )
    for view in config.world.views:
        lookup(dict.fromkeys(model.config.views), view, f"view of the reward model {folder}")
    return model


def refuse_other_eyes(spec: PolicySpec, model: Path, config: RefineCommand) -> None:
    """Raises `UserError` unless a policy that sees pictures gets those, and of them what, it was cloned from."""
    if spec.sees == "state":
        return
    if spec.encoder_sha256 != digest_of(model):
        raise UserError(
            f"the policy in {config.policy} sees by another reward model than {model}: name the one that it was "
            "cloned with, checkpoint=..."
        )
    if spec.views != config.world.views:
        raise UserError(
            f"the policy in {config.policy} was cloned from the views {', '.join(spec.views)}, not "
            f"{', '.join(config.world.views)}: set world.views=[{','.join(spec.views)}]"
        )


def refine_task(
    config: RefineCommand,
    policy: GaussianPolicy,
    model: Judge,
    eyes: ProgressNet | None,
    demonstrations: Pairs | None,
    run: RunFolder,
    reporter: Reporter,
    group: Group,
    labels: BackgroundScorer | None = None,
) -> Refined:
    """Refine `policy` in place in this process's share of the worlds of the task; the first process judges. `labels`
    gets films of some of them.

    Judging episodes are the same before and after.
    """
    task, world, sees = config.task, config.world, policy.spec.sees
    plain = narrow(config, RefineConfig)
    mine = replace(world, num_envs=group.share(world.num_envs))
    if world.faults is not None and group.rank:
        mine = replace(mine, faults=world.faults / f"process_{group.rank}")

    def judges(count: int) -> Evaluate:
        return make_judge(task, world, episodes=count, seed=config.seed, sees=sees, eyes=eyes)

    judge = judges(config.episodes) if group.rank == 0 else None
    watch = judges(config.watched) if group.rank == 0 and config.watched else None
    to_check = watch is not None and config.reward.success == "model"
    check = make_check(task, world, plain, sees=sees, model=model, eyes=eyes) if to_check else None
    played: VectorEnv = make_worlds(task, mine, ends_on_success=False)
    if labels is not None:
        how = config.labelling
        played = Filming(played, labels.offer, rows=how.worlds, every=how.every)
    worlds = shown(played, sees, eyes)
    try:
        return refine(worlds, policy, model, plain, run, reporter, judge, watch, check, demonstrations, group)
    finally:
        worlds.close()


COMMAND = Command(schema=RefineCommand, start=start, distributed=True)
