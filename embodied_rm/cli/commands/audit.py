"""`embodied-rm audit`: test a reward model with perturbed episodes that it should not reward."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from embodied_rm.audit import AuditResult, AuditRewardConfig, audit
from embodied_rm.command import Command
from embodied_rm.errors import CheckFailedError
from embodied_rm.experiments.load import EvaluationKeys, load_model_and_data
from embodied_rm.experiments.report_parts import audit_check, audit_panel
from embodied_rm.paths import model_label
from embodied_rm.report import KeyMetric, Report, write_report
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.run_folder import Reporter, RunFolder


@dataclass(frozen=True, kw_only=True)
class AuditConfig(EvaluationKeys):
    """Config of `audit`."""

    data: Path
    frame_stride: int = 1
    gamma: float = 0.98
    report_episodes: int = 12
    strict: bool = False
    reward: RewardConfig = field(default_factory=RewardConfig)


def main(config: AuditConfig, run: RunFolder, reporter: Reporter) -> None:
    """Audit the model; write metrics and report. Raises `CheckFailedError` if `strict` is set and a case fails."""
    loaded = load_model_and_data(config, config.data, reporter)
    model, source = model_label(config.checkpoint, config.judge), loaded.source
    reporter.table("audit", {"episodes": len(source), "views": source.views, "model": model})
    episodes = loaded.read_episodes(reporter, config.frame_stride)
    outcomes = audit(loaded.model, episodes, AuditRewardConfig(reward=config.reward, gamma=config.gamma), reporter)
    reporter.table("cases", {outcome.case.name: case_line(outcome) for outcome in outcomes})
    metrics = audit_metrics(outcomes)
    reporter.table("audit", metrics["audit"])
    failed = [outcome for outcome in outcomes if outcome.worst_clip is not None]
    report = Report(
        title="Audit of a reward model",
        subtitle=f"{model} on {config.data}. Below the table, the worst video of each case that failed.",
        key_metrics=tuple(KeyMetric(label=f"cases {key}", value=count) for key, count in metrics["audit"].items()),
        cases=tuple(map(audit_check, outcomes)),
        episodes=tuple(map(audit_panel, failed[: config.report_episodes])),
    )
    write_report(run.file_path("report.html"), report)
    run.write_json("metrics.json", metrics)
    if config.strict and (failed_cases := [o.case.name for o in outcomes if o.passed is False]):
        raise CheckFailedError(f"failed: {', '.join(failed_cases)}; see {run.path / 'report.html'}")


def audit_metrics(outcomes: Sequence[AuditResult]) -> dict[str, Any]:
    """Return the content of metrics.json."""
    counts = {
        "passed": sum(outcome.passed is True for outcome in outcomes),
        "failed": sum(outcome.passed is False for outcome in outcomes),
        "skipped": sum(outcome.value is None for outcome in outcomes),
    }
    return {"audit": counts, "cases": {outcome.case.name: outcome.as_dict() for outcome in outcomes}}


def case_line(outcome: AuditResult) -> str:
    """Format one case for the table on the terminal."""
    case = outcome.case
    if outcome.value is None:
        return f"skipped: needs {case.required_data}"
    status = {True: "passed", False: "FAILED", None: "      "}[outcome.passed]
    return f"{status}  {outcome.value:.3g} ({case.expected}; {case.metric_description}, n = {outcome.num_trials})"


COMMAND = Command(schema=AuditConfig, main=main)
