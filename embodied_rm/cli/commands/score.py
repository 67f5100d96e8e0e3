"""`embodied-rm score`: the progress of every frame of a recording."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from embodied_rm.cli.command import Command, narrow
from embodied_rm.cli.places import spoken_model
from embodied_rm.cli.recordings import recordings
from embodied_rm.cli.reports import panel
from embodied_rm.cli.trial import opened
from embodied_rm.data.goal import read_goal
from embodied_rm.data.names import Names
from embodied_rm.errors import UserError
from embodied_rm.models.base import Judge
from embodied_rm.models.judges.config import JudgeConfig
from embodied_rm.report import Report, write_report
from embodied_rm.run import Reporter, RunFolder
from embodied_rm.score import ScoreConfig, read_for, score, series
from embodied_rm.types import Episode


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
    """Score, and leave table, pictures, report and metrics in the run folder."""
    started = time.monotonic()
    model, _ = opened(config.checkpoint, config.judge)
    source = recordings(config.data, reporter, config.instruction, config.names)
    chosen = config.episodes or tuple(range(len(source)))
    reporter.table(
        "score",
        {
            "episodes": len(chosen),
            "views of the model": model.sight.views or "any",
            "views of the recording": source.views,
        },
    )
    goal = read_goal(config.goal, model.sight.views or source.views) if config.goal else None
    shown = (
        None
        if config.reference is None
        else demonstration(model, config.reference, config.instruction, config.names, reporter)
    )
    curves = score(model, source, narrow(config, ScoreConfig), run, reporter, goal, shown)
    if config.rerun:
        from embodied_rm.report.rerun_file import write_rerun

        scale = getattr(model, "interval_scale", None)
        told = {row: series(curve, scale) for row, curve in curves.items()}
        write_rerun(run, source, told, reporter)
    rows = reporter.track(list(curves)[: config.shown], "write report")
    panels = tuple(panel(source, row, curves[row]) for row in rows)
    by = spoken_model(config.checkpoint, config.judge)
    report = Report(title="Scored recordings", subtitle=f"{config.data}, by {by}", panels=panels)
    write_report(run.file("report.html"), report)
    numbers = {
        "episodes": len(curves),
        "frames": sum(map(len, curves.values())),
        "invalid": sum(int((~curve.valid).sum()) for curve in curves.values()),
        "seconds": time.monotonic() - started,
        **judge_faults(model),
    }
    reporter.table("scored", numbers)
    run.write_json("metrics.json", {"score": numbers})


def judge_faults(model: Judge) -> dict[str, int]:
    """Of a judge that may fail to answer: how many frames it left unscored, by why."""
    return {f"invalid: {why}": count for why, count in sorted(getattr(model, "faults", {}).items())}


def demonstration(model: Judge, folder: Path, instruction: str | None, names: Names, reporter: Reporter) -> Episode:
    """The first recording of a folder, as the model sees it."""
    return next(read_for(model.sight, recordings(folder, reporter, instruction, names), [0]))


COMMAND = Command(schema=ScoreCommand, start=start)
