"""`embodied-rm score`: the progress of every frame of a recording."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from embodied_rm.cli.command import Command, narrow
from embodied_rm.cli.places import reward_model_in, spoken_model
from embodied_rm.cli.recordings import recordings
from embodied_rm.cli.reports import panel
from embodied_rm.data.goal import read_goal
from embodied_rm.data.names import Names
from embodied_rm.errors import UserError
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.progress_net import ProgressNet
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
    rerun: bool = False
    names: Names = field(default_factory=Names)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rerun and find_spec("rerun") is None:
            raise UserError("rerun=true needs the SDK of Rerun, an optional package: pip install 'embodied-rm[rerun]'")


def start(config: ScoreCommand, run: RunFolder, reporter: Reporter) -> None:
    """Score, and leave table, pictures, report and metrics in the run folder."""
    started = time.monotonic()
    net = load_progress_net(reward_model_in(config.checkpoint))
    source = recordings(config.data, reporter, config.instruction, config.names)
    chosen = config.episodes or tuple(range(len(source)))
    reporter.table(
        "score",
        {"episodes": len(chosen), "views of the model": net.config.views, "views of the recording": source.views},
    )
    goal = read_goal(config.goal, net.config.views) if config.goal else None
    shown = (
        None
        if config.reference is None
        else demonstration(net, config.reference, config.instruction, config.names, reporter)
    )
    curves = score(net, source, narrow(config, ScoreConfig), run, reporter, goal, shown)
    if config.rerun:
        from embodied_rm.report.rerun_file import write_rerun

        told = {row: series(curve, net.interval_scale) for row, curve in curves.items()}
        write_rerun(run, source, told, reporter)
    rows = reporter.track(list(curves)[: config.shown], "write report")
    panels = tuple(panel(source, row, curves[row]) for row in rows)
    by = spoken_model(config.checkpoint)
    report = Report(title="Scored recordings", subtitle=f"{config.data}, by {by}", panels=panels)
    write_report(run.file("report.html"), report)
    numbers = {
        "episodes": len(curves),
        "frames": sum(map(len, curves.values())),
        "invalid": sum(int((~curve.valid).sum()) for curve in curves.values()),
        "seconds": time.monotonic() - started,
    }
    reporter.table("scored", numbers)
    run.write_json("metrics.json", {"score": numbers})


def demonstration(net: ProgressNet, folder: Path, instruction: str | None, names: Names, reporter: Reporter) -> Episode:
    """The first recording of a folder, as the model sees it."""
    return next(read_for(net.config, recordings(folder, reporter, instruction, names), [0]))


COMMAND = Command(schema=ScoreCommand, start=start)
