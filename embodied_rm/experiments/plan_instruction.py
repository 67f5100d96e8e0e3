"""`embodied-rm plan`: an instruction in any words as subgoals that a reward model knows, and can judge."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from embodied_rm.command import Command
from embodied_rm.data.subset import SubsetDataset
from embodied_rm.errors import DataError, UserError
from embodied_rm.experiments.load import EvaluationKeys, ModelAndData, load_model_and_data
from embodied_rm.experiments.write_reward import TRANSCRIPT_FILE, WriterConfig, open_writer
from embodied_rm.labels.subtasks import goal_of
from embodied_rm.metrics import roc_auc
from embodied_rm.models.judges.planner import check_plan, plan_subgoals
from embodied_rm.models.judges.transcript import TranscriptChat
from embodied_rm.models.scoring import score_episodes
from embodied_rm.models.subgoals import split_subgoals
from embodied_rm.run_folder import Reporter, RunFolder

MIN_AUC = 0.9  # smallest AUC of success with which a subgoal counts as judged well


@dataclass(frozen=True, kw_only=True)
class PlanConfig(EvaluationKeys):
    """Config of `plan`; `instruction` is the one to plan."""

    data: Path
    subgoals: tuple[str, ...] = ()
    transcript: Path | None = None
    writer: WriterConfig = field(default_factory=WriterConfig)

    def __post_init__(self) -> None:
        if self.subgoals and (self.writer.is_set or self.transcript is not None):
            raise UserError("subgoals= is a plan already: leave out writer= and transcript=, or subgoals=")


def main(config: PlanConfig, run: RunFolder, reporter: Reporter) -> None:
    """Plan, check how well the model judges each subgoal, and write both."""
    if config.instruction is None:
        raise UserError("instruction= says what the robot is to do")
    loaded = load_model_and_data(replace(config, instruction=None), config.data, reporter)
    if not loaded.model.capabilities.predicts_success:
        raise DataError("the reward model predicts no success, so that no subgoal would ever be done")
    known = sorted({goal_of(meta) for meta in loaded.source.meta})
    reporter.table("plan", {"instruction": config.instruction, "known instructions": len(known)})
    if config.subgoals:
        plan = check_plan(config.subgoals, known)
    else:
        path = config.transcript or run.file_path(TRANSCRIPT_FILE)
        chat = TranscriptChat(path, open_writer(config.writer), config.writer.name)
        plan = plan_subgoals(chat, config.instruction, known)
    aucs = measure_subgoals(split_subgoals(plan), loaded, reporter)
    reporter.table("success AUC of each subgoal", {name: describe(auc) for name, auc in aucs.items()})
    run.write_json("metrics.json", {"plan": {"instruction": plan, "success_auc": aucs}})
    suggest(plan, reporter)


def suggest(plan: str, reporter: Reporter) -> None:
    """Print the word of a command line that gives the plan; the instructions of a dataset may be words of a shell."""
    reporter.log(f"use it: {shlex.quote(f'instruction={plan}')}")


def measure_subgoals(subgoals: Sequence[str], loaded: ModelAndData, reporter: Reporter) -> dict[str, float | None]:
    """Return how well the model tells successes from failures of each subgoal; None without both in the data."""
    meta = enumerate(loaded.source.meta)
    rows = [m.index_in_dataset(row) for row, m in meta if goal_of(m) in subgoals and m.success is not None]
    episodes = loaded._replace(source=SubsetDataset(loaded.source, rows)).read_episodes(reporter)
    aucs: dict[str, float | None] = {}
    for subgoal in dict.fromkeys(subgoals):
        own = [episode for episode in episodes if goal_of(episode) == subgoal]
        is_success = np.array([bool(episode.success) for episode in own])
        if len(set(is_success.tolist())) < 2:
            aucs[subgoal] = None
            continue
        outputs = score_episodes(loaded.model, own)
        aucs[subgoal] = roc_auc(np.array([output.success[-1] for output in outputs]), is_success)
    return aucs


def describe(auc: float | None) -> str:
    """Return an AUC in words."""
    if auc is None:
        return "not known: the data have no successes and failures of it"
    return f"{auc:.3f}" + ("" if auc >= MIN_AUC else f", below {MIN_AUC}: adapt the model to it first")


COMMAND = Command(schema=PlanConfig, main=main)
