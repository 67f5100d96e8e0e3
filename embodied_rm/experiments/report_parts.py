"""Results of commands as parts of a report and of metrics.json."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import zip_longest

from embodied_rm.audit import AuditResult
from embodied_rm.audit.test_set import select_frames
from embodied_rm.data.source import EpisodeSource, stride_indices
from embodied_rm.experiments.episode_panel import MAX_PANEL_FRAMES, episode_panel, predicted_panel
from embodied_rm.models.reward_model import DescribedRewardModel
from embodied_rm.models.scoring import score_episodes
from embodied_rm.report import EpisodePanel, KeyMetric, ReportCase
from embodied_rm.score import read_episodes_for

FIGURE_LABELS = {
    "voc": "order correlation with time, successes",
    "voc_reversed": "order correlation with time, reversed successes",
    "success_auc": "success at the last frame, AUC",
    "mae_successes": "mean error of progress, successes",
    "mae_failures": "mean error of progress, failures",
    "subtask_accuracy": "subtask accuracy",
}
"""Metric of `evaluate` -> its label in the report."""


def audit_panel(outcome: AuditResult) -> EpisodePanel:
    """Return the panel of the worst clip of a failed case, thinned to about `MAX_PANEL_FRAMES`."""
    clip, curve = outcome.worst_clip, outcome.worst_curve
    assert clip is not None and curve is not None
    frame_indices = stride_indices(len(curve), -(-len(curve) // MAX_PANEL_FRAMES))
    # The outcome is the title of the panel.
    episode = replace(select_frames(clip.episode, frame_indices), metadata={"outcome": outcome.case.name})
    return predicted_panel(episode, curve, frame_indices)


def audit_check(outcome: AuditResult) -> ReportCase:
    """Return a case of an audit as a row of the report."""
    case = outcome.case
    return ReportCase(
        name=case.name,
        procedure=case.perturbation,
        metric=case.metric_description,
        expected=case.expected,
        value=outcome.value,
        num_trials=outcome.num_trials,
        passed=outcome.passed,
        note=f"needs {case.required_data}" if outcome.value is None else case.rationale,
    )


def episode_panels(model: DescribedRewardModel, source: EpisodeSource, count: int) -> tuple[EpisodePanel, ...]:
    """Return panels of up to `count` episodes of all tasks and outcomes, with predictions of the model."""
    rows = select_diverse_rows(source, count)
    predictions = score_episodes(model, list(read_episodes_for(model.input_spec, source, rows)))
    return tuple(episode_panel(source, row, curve) for row, curve in zip(rows, predictions, strict=True))


def select_diverse_rows(source: EpisodeSource, count: int) -> list[int]:
    """Select up to `count` rows, alternating between tasks and outcomes; sorted."""
    rows_by_kind: dict[tuple[str, str], list[int]] = {}
    for row, meta in enumerate(source.meta):
        rows_by_kind.setdefault((meta.metadata.get("task", ""), meta.metadata.get("outcome", "")), []).append(row)
    interleaved = [row for round_rows in zip_longest(*rows_by_kind.values()) for row in round_rows if row is not None]
    return sorted(interleaved[:count])


def headline_figures(model: Mapping[str, float], baselines: Mapping[str, Mapping[str, float]]) -> tuple[KeyMetric, ...]:
    """Return the headline metrics of an evaluation, next to those of the time baseline."""
    time_baseline = baselines.get("time", {})

    def format_target(metric: str) -> str:
        return f"time baseline: {time_baseline[metric]:.3f}" if metric in time_baseline else ""

    return tuple(
        KeyMetric(label=label, value=model[metric], target=format_target(metric))
        for metric, label in FIGURE_LABELS.items()
        if metric in model
    )
