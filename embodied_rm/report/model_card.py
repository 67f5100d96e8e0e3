"""Model card: data, metrics and failures of a reward model, generated from its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

METRIC_COLUMNS = {
    "voc": "VOC",
    "voc_reversed": "reversed",
    "success_auc": "AUC",
    "mae": "MAE",
    "mae_failures": "MAE, failures",
    "subtask_accuracy": "subtask accuracy",
    "uncertainty_correlation": "uncertainty and error",
    "interval_coverage": "coverage",
    "ood_rate": "out of distribution",
}
"""Metric of `evaluate` -> column of the card. docs/metrics.md defines the metrics."""


def model_card(metrics: Mapping[str, Any]) -> str:
    """Return the card as Markdown, from the metrics of `embodied-rm build-checkpoint`."""
    data_stats, train_stats, durations_s = metrics["collect"], metrics["train"], metrics["seconds"]
    return "\n".join([
        "# Reward model of the tabletop tasks",
        "",
        "Trained from scratch by `make checkpoint`, which also generated this card.",
        "",
        "## Data and training",
        "",
        f"{data_stats['episodes']} simulated episodes ({data_stats['successes']} successes; "
        f"{data_stats['frames']} frames)",
        "of the split `seen` (docs/zero_shot.md): scripted experts and scripted failures; no real robot.",
        "Time-reversed copies carry the opposite instruction, if the task defines one: the data contain no closing of",
        "a drawer, but the instruction for it occurs (docs/reward_model.md, \"Played backwards\").",
        f"{train_stats['parameters']:,} parameters. {durations_s['total'] / 60:.0f} minutes in total, "
        f"{train_stats['seconds'] / 60:.0f} of them training, on {metrics['machine']}.",
        "",
        "## Metrics by split",
        "",
        *_split_table(metrics["splits"]),
        "",
        "Uncertainty and error: Spearman's correlation; coverage: of the interval",
        f"value +- {metrics['calibrate']['interval_scale']:.2f} (uncertainty + 0.01), fitted to cover 90 % of",
        f"frames of {metrics['calibrate']['episodes']} other episodes of `seen`; out of distribution: share of frames",
        "above the 99th percentile of these episodes. All columns: docs/metrics.md.",
        "Baselines without images, on the same episodes:",
        "",
        *_baseline_table(metrics["splits"]),
        "",
        "## Metrics by task",
        "",
        *_task_table(metrics["splits"]),
        "",
        "## Audit",
        "",
        "{passed} cases passed, {failed} failed, {skipped} skipped (docs/audit.md).".format(**metrics["audit"]),
        "",
        *_case_table(metrics["cases"]),
        "",
        "## Limits",
        "",
        "Simulated primitives on one table, with one lamp and small camera variations. Do not rely on the model where "
        "a row above is low. Before any other use, audit it: `embodied-rm audit`.",
        "",
    ])  # fmt: skip


def _split_table(splits: Mapping[str, Any]) -> list[str]:
    return _markdown_table("split", {name: numbers["reward_model"] for name, numbers in splits.items()})


def _baseline_table(splits: Mapping[str, Any]) -> list[str]:
    rows = {
        f"_{name}_ ({split})": numbers
        for split, split_metrics in splits.items()
        for name, numbers in split_metrics["baselines"].items()
    }
    return _markdown_table("baseline", rows)


def _task_table(splits: Mapping[str, Any]) -> list[str]:
    rows = {
        f"{task} ({name})": numbers
        for name, split_metrics in splits.items()
        for task, numbers in split_metrics["tasks"].items()
        if name in ("seen", "unseen_task")
    }
    return _markdown_table("task", rows)


def _markdown_table(row_header: str, rows: Mapping[str, Mapping[str, float]]) -> list[str]:
    lines = [f"| {row_header} | {' | '.join(METRIC_COLUMNS.values())} |", "|---" * (len(METRIC_COLUMNS) + 1) + "|"]
    for name, metrics in rows.items():
        cells = [f"{metrics[key]:.3f}" if key in metrics else "-" for key in METRIC_COLUMNS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _case_table(cases: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = ["| case | expected | value | |", "|---|---|---|---|"]
    for name, case in cases.items():
        if "skipped" in case:
            lines.append(f"| {name} | {case['skipped']} | - | skipped |")
            continue
        result = {True: "passed", False: "**failed**", None: ""}[case["passed"]]
        lines.append(f"| {name} | {case['expected']} | {case['value']:.3g} | {result} |")
    return lines
