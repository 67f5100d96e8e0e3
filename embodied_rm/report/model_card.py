"""Model card: data, metrics and failures of a reward model, generated from its metrics."""

from collections.abc import Mapping
from typing import Any

from embodied_rm.report.front_matter import LICENSE, evaluation_result, front_matter
from embodied_rm.report.markdown import format_metrics, markdown_table

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
    splits = metrics["splits"]
    baselines = {f"_{key}_ ({name})": row for name in splits for key, row in splits[name]["baselines"].items()}
    task_splits = [name for name in splits if name in ("seen", "unseen_task")]
    tasks = {f"{task} ({name})": row for name in task_splits for task, row in splits[name]["tasks"].items()}
    results = [
        evaluation_result(f"simulated tabletop tasks, split {name}", numbers["reward_model"], METRIC_COLUMNS)
        for name, numbers in splits.items()
    ]
    return "\n".join([
        front_matter(tags=["progress_net", "mujoco"], license_id=LICENSE, results=results),
        "# Reward model of the tabletop tasks",
        "",
        describe_start(metrics["init_sha256"]),
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
        *_metric_table("split", {name: numbers["reward_model"] for name, numbers in splits.items()}),
        "",
        "Uncertainty and error: Spearman's correlation; coverage: of the interval",
        f"value +- {metrics['calibrate']['interval_scale']:.2f} (uncertainty + 0.01), fitted to cover 90 % of",
        f"frames of {metrics['calibrate']['episodes']} other episodes of `seen`; out of distribution: share of frames",
        "above the 99th percentile of these episodes. All columns: docs/metrics.md.",
        *describe_success_threshold(metrics["calibrate"].get("success_threshold")),
        "Baselines without images, on the same episodes:",
        "",
        *_metric_table("baseline", baselines),
        "",
        "## Metrics by task",
        "",
        *_metric_table("task", tasks),
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


def describe_start(init_sha256: str | None) -> str:
    """Return the sentence on the weights that training started from."""
    if init_sha256 is None:
        return "Trained from random weights by `embodied-rm build-checkpoint`, which also generated this card."
    return (
        f"Training continued from the checkpoint with the `manifest_sha256` `{init_sha256}`.\n"
        "`embodied-rm build-checkpoint init_from=` trained it and generated this card."
    )


def describe_success_threshold(threshold: float | None) -> list[str]:
    """Return the lines on the fitted success threshold; none for a model without one."""
    if threshold is None:
        return []
    return [f"A frame counts as done from a success probability of {threshold:.3f}, fitted on the same episodes."]


def _metric_table(row_header: str, rows: Mapping[str, Mapping[str, float]]) -> list[str]:
    cells = [(name, *format_metrics(metrics, METRIC_COLUMNS)) for name, metrics in rows.items()]
    return markdown_table((row_header, *METRIC_COLUMNS.values()), cells)


def _case_table(cases: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = ["| case | expected | value | |", "|---|---|---|---|"]
    for name, case in cases.items():
        if "skipped" in case:
            lines.append(f"| {name} | {case['skipped']} | - | skipped |")
            continue
        result = {True: "passed", False: "**failed**", None: ""}[case["passed"]]
        lines.append(f"| {name} | {case['expected']} | {case['value']:.3g} | {result} |")
    return lines
