"""`embodied-rm evaluate`: a reward model against annotation it has not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embodied_rm.cli.command import Command
from embodied_rm.cli.places import REWARD_MODEL, checkpoint_in, dataset_in
from embodied_rm.cli.reports import figures, panel, spread
from embodied_rm.data.catalog import open_data
from embodied_rm.data.goal import read_goal
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import DataError, UserError, lookup
from embodied_rm.evaluate import Judged, evaluate, goal_rows, joined, judge
from embodied_rm.fusion import FUSIONS, Fusion
from embodied_rm.labels.frames import label
from embodied_rm.labels.steps import goal_of
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.similarity import Similarity
from embodied_rm.report import Report, write_report
from embodied_rm.run import Reporter, RunFolder
from embodied_rm.score import read_for
from embodied_rm.types import Episode

FUSION: Mapping[str, Fusion] = {name: name for name in FUSIONS}


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """What to compare with what."""

    data: Path
    checkpoint: Path
    instruction: str | None = None
    fusion: str | None = None
    goals: bool = False
    goal: tuple[Path, ...] = ()
    similarity: str | None = None
    name: str = "reward_model"
    shown: int = 12

    def __post_init__(self) -> None:
        if self.name in ("baselines", "episodes", ""):
            raise UserError(f"name must differ from the other keys of metrics.json, got {self.name!r}")
        if self.fusion is not None:
            lookup(FUSION, self.fusion, "fusion")
        if self.goals and self.goal:
            raise UserError("goals=true and goal=[...] both say where goal pictures come from: say one of them")


def start(config: EvaluateConfig, run: RunFolder, reporter: Reporter) -> None:
    """Evaluate, and leave metrics and report in the run folder."""
    net = load_progress_net(checkpoint_in(config.checkpoint, REWARD_MODEL))
    net = net if config.fusion is None else net.fused_by(FUSION[config.fusion])
    similarity = None if config.similarity is None else Similarity(config.similarity)
    source = open_data(dataset_in(config.data), config.instruction)
    reporter.table("evaluate", {"episodes": len(source), "views": source.views, "model": config.checkpoint})
    episodes = list(reporter.track(read_for(net.config, source), "read episodes", total=len(source)))
    rows, goals = aims(config, net, episodes)
    judged = judge(net, [episodes[row] for row in rows], goals)
    others = {} if similarity is None else {"similarity": similar(similarity, source, rows, reporter)}
    metrics: dict[str, Any] = evaluate(net, episodes, reporter, judged, others, rows)
    if len(rows) < len(episodes):
        metrics["episodes"]["left_out_without_goal"] = len(episodes) - len(rows)
    reporter.table(config.name, metrics["reward_model"])
    for name, numbers in metrics["baselines"].items():
        reporter.table(f"baseline: {name}", numbers)
    curves = dict(zip(rows, judged.curves, strict=True))
    report = Report(
        title="Reward model against annotation",
        subtitle=f"{config.checkpoint} on {config.data}, which it must not have seen.",
        figures=figures(metrics["reward_model"], metrics["baselines"]),
        panels=tuple(panel(source, row, curves[row]) for row in spread(source, config.shown) if row in curves),
    )
    write_report(run.file("report.html"), report)
    run.write_json("metrics.json", named(metrics, config.name))


def aims(
    config: EvaluateConfig, net: ProgressNet, episodes: Sequence[Episode]
) -> tuple[list[int], list[Episode] | None]:
    """Which episodes are judged, and towards which goal pictures: those of another episode, those given, or none.

    Raises `DataError` when no episode has a goal picture in another, `UserError` when one picture cannot be all goals.
    """
    everything = list(range(len(episodes)))
    if config.goals:
        known = {row: goal for row, goal in enumerate(goal_rows(label(episodes))) if goal is not None}
        if not known:
            raise DataError(
                f"{config.data}: no two episodes with one goal of which one succeeds; goals=true needs them"
            )
        return list(known), [episodes[goal] for goal in known.values()]
    if not config.goal:
        return everything, None
    wishes = sorted({goal_of(episode) for episode in episodes})
    if len(wishes) > 1:
        raise UserError(f"goal=[...] shows one goal, {config.data} has {len(wishes)}: {', '.join(wishes)}")
    return everything, [read_goal(config.goal, net.config.views)] * len(episodes)


def similar(model: Similarity, source: EpisodeSource, rows: Sequence[int], reporter: Reporter) -> Judged:
    """What frame-text similarity says of the episodes, read one by one at its own picture size."""
    tracked = reporter.track(rows, "similarity", total=len(rows))
    return joined(judge(model, [source.episode(row, size=model.config.image_size)]) for row in tracked)


def named(metrics: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The metrics with the model's numbers under another name."""
    return {name if key == "reward_model" else key: value for key, value in metrics.items()}


COMMAND = Command(schema=EvaluateConfig, start=start)
