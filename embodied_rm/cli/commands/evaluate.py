"""`embodied-rm evaluate`: a reward model against annotation it has not seen, of given data or of the unseen splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from embodied_rm.cli.command import Command
from embodied_rm.cli.commands import collect
from embodied_rm.cli.goals import goal_pictured, goals_of_others
from embodied_rm.cli.one_shot import OneShot, OneShotConfig
from embodied_rm.cli.places import DATASET, spoken_model
from embodied_rm.cli.reports import FIGURES, figures, panel, spread
from embodied_rm.cli.splits import ALL, NONE, Split, check_split, refuse_known, refuse_trained, shipped, unseen_splits
from embodied_rm.cli.stages import Stages
from embodied_rm.cli.trial import Trial, on_trial, opened, ours
from embodied_rm.cli.worlds import WorldConfig
from embodied_rm.data.catalog import open_data
from embodied_rm.data.names import Names
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import UserError, lookup
from embodied_rm.evaluate import Judged, evaluate, joined, judge
from embodied_rm.fusion import FUSIONS, Fusion
from embodied_rm.labels.steps import task_of
from embodied_rm.models.base import Judge
from embodied_rm.models.judges.config import JudgeConfig
from embodied_rm.models.similarity import Similarity
from embodied_rm.report import Report, write_report
from embodied_rm.run import Reporter, RunFolder
from embodied_rm.score import read_for
from embodied_rm.types import Episode

FUSION: Mapping[str, Fusion] = {name: name for name in FUSIONS if name != "reference"}
"""Those that need no demonstration; with one_shot.by=reference the fusion is that."""


@dataclass(frozen=True, kw_only=True)
class RecordConfig:
    """How the episodes of a split are recorded, see `CollectConfig`."""

    successes: int = 10
    failures: int = 10
    every: int = 2
    noise: float = 0.3
    pace: tuple[float, ...] = (0.6, 1.0)
    seed: int = 1000
    world: WorldConfig = field(default_factory=WorldConfig)


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """What to compare with what: `data`, or what is recorded of `split`."""

    data: Path | None = None
    checkpoint: Path | None = None
    split: Split = field(default_factory=Split)
    record: RecordConfig = field(default_factory=RecordConfig)
    one_shot: OneShotConfig = field(default_factory=OneShotConfig)
    instruction: str | None = None
    fusion: str | None = None
    goals: bool = False
    goal: tuple[Path, ...] = ()
    similarity: str | None = None
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    names: Names = field(default_factory=Names)
    name: str = "reward_model"
    shown: int = 12

    def __post_init__(self) -> None:
        if self.name in ("baselines", "episodes", "tasks", "one_shot", "by", ""):
            raise UserError(f"name must differ from the other keys of metrics.json, got {self.name!r}")
        if self.fusion is not None:
            lookup(FUSION, self.fusion, "fusion")
        if self.goals and self.goal:
            raise UserError("goals=true and goal=[...] both say where goal pictures come from: say one of them")
        if self.one_shot.by is not None and self.data is not None:
            raise UserError("one_shot records a demonstration of each task, which needs split=..., not data=...")
        if self.one_shot.by is not None and self.one_shot.seed == self.record.seed:
            raise UserError(f"one_shot.seed must differ from record.seed, both are {self.record.seed}")


def start(config: EvaluateConfig, run: RunFolder, reporter: Reporter) -> None:
    """Evaluate, and leave metrics and report in the run folder. Raises `UserError` unless one of data and split says
    on what."""
    if (config.data is None) == (config.split.name == NONE):
        raise UserError("evaluate needs either data=..., recorded episodes, or split=..., which it records itself")
    if config.data is not None:
        trial = on_trial(config.checkpoint, config.data, reporter, config.instruction, config.names, config.judge)
        trial = trial._replace(model=fused(trial.model, config))
        run.write_json("metrics.json", measure(trial, config, f"{config.data}", run, reporter))
        return
    known, facts = opened(config.checkpoint, config.judge)
    model = fused(known, config)
    splits = [shipped(name) for name in unseen_splits()] if config.split.name == ALL else [config.split]
    for split in splits:
        check_split(split)
        refuse_known(facts, split, config.record.seed)
    found = {split.name: measure_split(model, facts, split, config, run, reporter) for split in splits}
    reporter.table("splits", table({name: numbers[config.name] for name, numbers in found.items()}))
    run.write_json("metrics.json", {"splits": found})


def fused(model: Judge, config: EvaluateConfig) -> Judge:
    """The model as it is, or with the fusion that is asked for. Raises `UserError` for one that fuses nothing."""
    return model if config.fusion is None else ours(model, "fusion").fused_by(FUSION[config.fusion])


def measure_split(
    model: Judge,
    facts: Mapping[str, Any],
    split: Split,
    config: EvaluateConfig,
    run: RunFolder,
    reporter: Reporter,
) -> dict[str, Any]:
    """The numbers of one split, over all its episodes and of each task; its episodes are recorded only once."""
    recording = collect.CollectConfig(split=split, **vars(config.record))
    Stages(run, reporter).command(f"record {split.name}", split.name, collect.COMMAND, recording)
    folder = RunFolder(run.path / split.name)
    source = open_data(folder.path / DATASET)
    refuse_trained(facts, source.meta)
    trial = Trial(model, facts, source)
    metrics = measure(trial, config, f"the split {split.name}", folder, reporter, by_task=True)
    if config.one_shot.by is not None:
        net = ours(model, "one_shot.by")
        one_shot = OneShot(
            net=net, facts=facts, config=config.one_shot, recording=recording, run=folder, reporter=reporter
        )
        metrics["one_shot"] = measure_one_shot(one_shot, source, config)
    return metrics


def measure_one_shot(one_shot: OneShot, source: EpisodeSource, config: EvaluateConfig) -> dict[str, Any]:
    """The model's numbers once it has a demonstration of each task, over all the episodes and of each task."""
    reporter, split = one_shot.reporter, one_shot.recording.split.name
    shown, episodes = one_shot.demonstrations(), list(read_for(one_shot.net.sight, source))
    rows, goals = aims(config, one_shot.net, episodes, f"the split {split}")
    places = {task: [i for i, row in enumerate(rows) if task_of(episodes[row]) == task] for task in shown}
    parts = {
        task: one_shot.judge(
            shown[task], [episodes[rows[i]] for i in at], None if goals is None else [goals[i] for i in at]
        )
        for task, at in reporter.track(places.items(), "one shot", total=len(places))
    }
    numbers: dict[str, Any] = {
        task: evaluate(one_shot.net, episodes, reporter, part, rows=[rows[i] for i in places[task]])["reward_model"]
        for task, part in parts.items()
    }
    order = [rows[i] for at in places.values() for i in at]
    together: Any = evaluate(one_shot.net, episodes, reporter, joined(parts.values()), rows=order)["reward_model"]
    reporter.table(f"one shot, by {config.one_shot.by}", table({split: together, **numbers}))
    return {"by": config.one_shot.by, config.name: together, "tasks": numbers}


def measure(
    trial: Trial,
    config: EvaluateConfig,
    what: str,
    folder: RunFolder,
    reporter: Reporter,
    *,
    by_task: bool = False,
) -> dict[str, Any]:
    """What `evaluate` says of the model on these episodes; leaves the report in the folder."""
    source = trial.source
    # Before the films are read: whoever misspelt the folder is told at once.
    similarity = None if config.similarity is None else Similarity(config.similarity)
    model = spoken_model(config.checkpoint, config.judge)
    reporter.table("evaluate", {"on": what, "episodes": len(source), "views": source.views, "model": model})
    episodes = trial.read(reporter)
    rows, goals = aims(config, trial.model, episodes, what)
    judged = judge(trial.model, [episodes[row] for row in rows], goals)
    others = {} if similarity is None else {"similarity": similar(similarity, source, rows, reporter)}
    metrics: dict[str, Any] = evaluate(trial.model, episodes, reporter, judged, others, rows)
    if len(rows) < len(episodes):
        metrics["episodes"]["left_out_without_goal"] = len(episodes) - len(rows)
    reporter.table(config.name, metrics["reward_model"])
    for name, numbers in metrics["baselines"].items():
        reporter.table(f"baseline: {name}", numbers)
    curves = dict(zip(rows, judged.curves, strict=True))
    report = Report(
        title="Reward model against annotation",
        subtitle=f"{model} on {what}, which it must not have seen.",
        figures=figures(metrics["reward_model"], metrics["baselines"]),
        panels=tuple(panel(source, row, curves[row]) for row in spread(source, config.shown) if row in curves),
    )
    write_report(folder.file("report.html"), report)
    if by_task:
        metrics["tasks"] = {}
        for task in dict.fromkeys(task_of(episodes[row]) for row in rows):
            at = [i for i, row in enumerate(rows) if task_of(episodes[row]) == task]
            of_task = evaluate(trial.model, episodes, reporter, judged.take(at), rows=[rows[i] for i in at])
            metrics["tasks"][task] = of_task["reward_model"]
        reporter.table("tasks", table(metrics["tasks"]))
    return named(metrics, config.name)


def aims(
    config: EvaluateConfig, model: Judge, episodes: Sequence[Episode], what: str
) -> tuple[list[int], list[Episode] | None]:
    """Which episodes are judged, and towards which goal pictures: those of others, those given, or none."""
    if config.goals:
        known = goals_of_others(episodes, what)
        return list(known), [episodes[goal] for goal in known.values()]
    everything = list(range(len(episodes)))
    if not config.goal:
        return everything, None
    return everything, [
        goal_pictured(config.goal, model.sight.views or tuple(episodes[0].views), episodes, what)
    ] * len(episodes)


def similar(
    model: Similarity, source: EpisodeSource, rows: Sequence[int], reporter: Reporter, stride: int = 1
) -> Judged:
    """What frame-text similarity says of every `stride`-th frame of the episodes, read one by one at its own picture
    size."""
    tracked = reporter.track(rows, "similarity", total=len(rows))
    size = model.config.image_size
    return joined(judge(model, [source.episode(row, size=size, stride=stride)]) for row in tracked)


def table(rows: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """Rows of a table with a column for each headline metric that any of them has, "-" where one lacks it."""
    columns = [metric for metric in FIGURES if any(metric in numbers for numbers in rows.values())]
    cells = {name: [f"{n[c]:.3f}" if c in n else "-" for c in columns] for name, n in rows.items()}
    return {name: "  ".join(map(str.rjust, row, map(len, columns))) for name, row in {"": columns, **cells}.items()}


def named(metrics: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The metrics with the model's numbers under another name."""
    return {name if key == "reward_model" else key: value for key, value in metrics.items()}


COMMAND = Command(schema=EvaluateConfig, start=start)
