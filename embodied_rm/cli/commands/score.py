"""`embodied-rm score`: the progress of every frame of recordings, one or a corpus."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from embodied_rm.cli.command import Command, narrow
from embodied_rm.cli.places import reward_model_in, spoken_model
from embodied_rm.cli.recordings import recordings, tell
from embodied_rm.cli.reports import panel
from embodied_rm.cli.trial import opened
from embodied_rm.data.faults import Fault, named
from embodied_rm.data.goal import read_goal
from embodied_rm.data.identity import episodes_identity, file_identity
from embodied_rm.data.names import Names
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import DataError, UserError
from embodied_rm.models.checkpoint import judging_digest
from embodied_rm.models.judges.config import JudgeConfig, identity
from embodied_rm.report import Panel, Report, write_report
from embodied_rm.run import Reporter, RunFolder, Silent
from embodied_rm.score import ScoreConfig, Scored, Scorer, read_for, score_corpus, series
from embodied_rm.score.config import HOW


@dataclass(frozen=True, kw_only=True)
class ScoreCommand(ScoreConfig):
    """Scoring of stored recordings."""

    data: Path
    checkpoint: Path | None = None
    instruction: str | None = None
    goal: tuple[Path, ...] = ()
    reference: Path | None = None
    shown: int = 12
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    rerun: bool = False
    names: Names = field(default_factory=Names)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rerun and find_spec("rerun") is None:
            raise UserError("rerun=true needs the SDK of Rerun, an optional package: pip install 'embodied-rm[rerun]'")


def start(config: ScoreCommand, run: RunFolder, reporter: Reporter) -> None:
    """Score what is not scored yet, and leave table, pictures, report and metrics in the run folder."""
    started = time.monotonic()
    if config.judge.layout is None:
        reward_model_in(config.checkpoint)  # one that is missing is told before anything is read
    source = recordings(config.data, reporter, config.instruction, config.names)
    reporter.table("score", about(config, source))
    scored = score_corpus(
        partial(open_scorer, config, source.views),
        source,
        narrow(config, ScoreConfig),
        run,
        reporter,
        made_of(config),
        gpus=int(config.judge.device.startswith("cuda")),
    )
    tell(scored.faults, reporter)
    if config.rerun:
        for_rerun(run, source, scored, reporter)
    rows = reporter.track(list(scored.curves)[: config.shown], "write report")
    panels = tuple(shown(source, rows, scored, reporter))
    by = spoken_model(config.checkpoint, config.judge)
    report = Report(title="Scored recordings", subtitle=f"{config.data}, by {by}", panels=panels)
    write_report(run.file("report.html"), report)
    numbers = {**counted(source, scored), "seconds": time.monotonic() - started}
    reporter.table("scored", {**numbers, "left_out": len(numbers["left_out"])})
    run.write_json("metrics.json", {"score": numbers})


def about(config: ScoreCommand, source: EpisodeSource) -> dict[str, object]:
    """What is scored and who does it."""
    return {
        "episodes": len(config.episodes) or len(source),
        "views of the recording": source.views,
        "judge": spoken_model(config.checkpoint, config.judge),
        "engine": config.engine,
        "workers": config.workers,
    }


def open_scorer(config: ScoreCommand, views: Sequence[str]) -> Scorer:
    """The model, the goal and the demonstration that are named; `views`: those of the recordings."""
    model, _ = opened(config.checkpoint, config.judge)
    sight = model.sight
    goal = read_goal(config.goal, sight.views or views) if config.goal else None
    if config.reference is None:
        return Scorer(model=model, goal=goal)
    known = recordings(config.reference, Silent(), config.instruction, config.names)
    return Scorer(model=model, goal=goal, reference=next(read_for(sight, known, [0])))


def made_of(config: ScoreCommand) -> dict[str, str]:
    """Whatever decides how the model judges, see `score_corpus`."""
    asked = config.judge.layout is not None
    told = {"model": identity(config.judge) if asked else judging_digest(reward_model_in(config.checkpoint))}
    if config.goal:
        pictures = " ".join(f"{path.stem} {file_identity(path)}" for path in config.goal)
        told["goal"] = hashlib.sha256(pictures.encode()).hexdigest()
    if config.reference is not None:
        known = recordings(config.reference, Silent(), config.instruction, config.names)
        told["reference"] = episodes_identity(known, [0])
    return told


def shown(source: EpisodeSource, rows: Iterator[int], scored: Scored, reporter: Reporter) -> Iterator[Panel]:
    """The episodes beside their scores; one whose other views cannot be read is told, not shown."""
    for row in rows:
        try:
            yield panel(source, row, scored.curves[row])
        except DataError as error:
            tell([Fault.told_by(error, ())], reporter)


def for_rerun(run: RunFolder, source: EpisodeSource, scored: Scored, reporter: Reporter) -> None:
    """An rrd of every episode; one whose other views cannot be read is told."""
    from embodied_rm.report.rerun_file import write_rerun

    for row in reporter.track(scored.curves, "write for Rerun"):
        try:
            write_rerun(run, source, {row: series(scored.curves[row], scored.interval_scale)}, Silent())
        except DataError as error:
            tell([Fault.told_by(error, ())], reporter)


def counted(source: EpisodeSource, scored: Scored) -> dict[str, Any]:
    """How many episodes and frames there are, and what is missing."""
    invalid = {row: int((~curve.valid).sum()) for row, curve in scored.curves.items()}
    return {
        "episodes": len(invalid),
        "frames": sum(source.meta[row].length for row in invalid),
        "invalid": sum(invalid.values()),
        **{f"invalid: {why}": count for why, count in sorted(scored.unscored.items())},
        "left_out": [*named(source.faults), *named(scored.faults)],
    }


COMMAND = Command(schema=ScoreCommand, start=start, how=HOW)
