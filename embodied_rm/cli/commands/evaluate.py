"""`embodied-rm evaluate`: a reward model against annotation it has not seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embodied_rm.cli.command import Command
from embodied_rm.cli.places import REWARD_MODEL, checkpoint_in, dataset_in
from embodied_rm.cli.reports import figures, panel, spread
from embodied_rm.data.catalog import open_data
from embodied_rm.errors import UserError
from embodied_rm.evaluate import evaluate
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.fold import fold
from embodied_rm.report import Report, write_report
from embodied_rm.run import Reporter, RunFolder
from embodied_rm.score import read_for


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """What to compare with what."""

    data: Path
    checkpoint: Path
    instruction: str | None = None
    name: str = "reward_model"
    shown: int = 12

    def __post_init__(self) -> None:
        if self.name in ("baselines", "episodes", ""):
            raise UserError(f"name must differ from the other keys of metrics.json, got {self.name!r}")


def start(config: EvaluateConfig, run: RunFolder, reporter: Reporter) -> None:
    """Evaluate, and leave metrics and report in the run folder."""
    net = load_progress_net(checkpoint_in(config.checkpoint, REWARD_MODEL))
    source = open_data(dataset_in(config.data), config.instruction)
    reporter.table("evaluate", {"episodes": len(source), "views": source.views, "model": config.checkpoint})
    episodes = list(reporter.track(read_for(net.config, source), "read episodes", total=len(source)))
    curves = fold(net, episodes)
    metrics: dict[str, Any] = dict(evaluate(net, episodes, reporter, curves))
    reporter.table(config.name, metrics["reward_model"])
    for name, numbers in metrics["baselines"].items():
        reporter.table(f"baseline: {name}", numbers)
    report = Report(
        title="Reward model against annotation",
        subtitle=f"{config.checkpoint} on {config.data}, which it must not have seen.",
        figures=figures(metrics["reward_model"], metrics["baselines"]),
        panels=tuple(panel(source, row, curves[row]) for row in spread(source, config.shown)),
    )
    write_report(run.file("report.html"), report)
    run.write_json("metrics.json", named(metrics, config.name))


def named(metrics: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The metrics with the model's numbers under another name."""
    return {name if key == "reward_model" else key: value for key, value in metrics.items()}


COMMAND = Command(schema=EvaluateConfig, start=start)
