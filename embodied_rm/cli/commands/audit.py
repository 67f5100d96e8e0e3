"""`embodied-rm audit`: whether a reward can be trusted, tried with what is made to fool it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from embodied_rm.audit import Outcome, Rules, audit
from embodied_rm.cli.command import Command
from embodied_rm.cli.places import spoken_model
from embodied_rm.cli.reports import check, film_panel
from embodied_rm.cli.trial import on_trial
from embodied_rm.data.names import Names
from embodied_rm.errors import UnmetError
from embodied_rm.models.judges.config import JudgeConfig
from embodied_rm.report import Figure, Report, write_report
from embodied_rm.rl.envs.reward_config import RewardConfig
from embodied_rm.run import Reporter, RunFolder


@dataclass(frozen=True, kw_only=True)
class AuditConfig:
    """What to try on what."""

    data: Path
    checkpoint: Path | None = None
    instruction: str | None = None
    stride: int = 1
    gamma: float = 0.98
    shown: int = 12
    strict: bool = False
    names: Names = field(default_factory=Names)
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)


def start(config: AuditConfig, run: RunFolder, reporter: Reporter) -> None:
    """Audit, and leave metrics and report in the run folder. Raises `UnmetError` when `strict` and a case fails."""
    trial = on_trial(config.checkpoint, config.data, reporter, config.instruction, config.names, config.judge)
    model, source = spoken_model(config.checkpoint, config.judge), trial.source
    reporter.table("audit", {"episodes": len(source), "views": source.views, "model": model})
    episodes = trial.read(reporter, config.stride)
    outcomes = audit(trial.model, episodes, Rules(reward=config.reward, gamma=config.gamma), reporter)
    reporter.table("cases", {outcome.case.name: line(outcome) for outcome in outcomes})
    metrics = summary(outcomes)
    reporter.table("audit", metrics["audit"])
    report = Report(
        title="Audit of a reward model",
        subtitle=f"{model} on {config.data}. Below the table, the worst film of each case that failed.",
        figures=tuple(Figure(label=f"cases {key.replace('_', ' ')}", value=n) for key, n in metrics["audit"].items()),
        checks=tuple(map(check, outcomes)),
        panels=tuple(film_panel(outcome) for outcome in outcomes if outcome.worst is not None)[: config.shown],
    )
    write_report(run.file("report.html"), report)
    run.write_json("metrics.json", metrics)
    if config.strict and (failed := [o.case.name for o in outcomes if o.passed is False]):
        raise UnmetError(f"failed: {', '.join(failed)}; see {run.path / 'report.html'}")


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What metrics.json says."""
    counts = {
        "passed": sum(outcome.passed is True for outcome in outcomes),
        "failed": sum(outcome.passed is False for outcome in outcomes),
        "left_out": sum(outcome.measured is None for outcome in outcomes),
    }
    return {"audit": counts, "cases": {outcome.case.name: outcome.as_dict() for outcome in outcomes}}


def line(outcome: Outcome) -> str:
    """One case in the table on the terminal."""
    case = outcome.case
    if outcome.measured is None:
        return f"left out: needs {case.needs}"
    sign = {True: "passed", False: "FAILED", None: "      "}[outcome.passed]
    return f"{sign}  {outcome.measured:.3g} ({case.expected}; {case.measured}, n = {outcome.n})"


COMMAND = Command(schema=AuditConfig, start=start)
