"""Report of a training with a held-out curve."""

from collections.abc import Mapping
from typing import Any

from embodied_rm.report.contents import KeyMetric, LineChart, Report, ReportTable

METRIC_LABELS = {"error": "error", "voc": "VOC", "mae": "MAE", "success_auc": "success AUC"}
"""Metric of an evaluation -> its label. The error decides, and combines the others."""


def training_report(held_out: Mapping[str, Any], data: str, held_out_data: str) -> Report:
    """Return the report: the held-out curve, and the step whose weights were kept.

    Args:
        held_out: Entry `held_out` of metrics.json: `best_step`, `stopped_early` and the rows of `curve`.
        data: Name of the training data.
        held_out_data: Name of the held-out data.
    """
    rows, best_step = held_out["curve"], held_out["best_step"]
    names = [name for name in METRIC_LABELS if name in rows[0]]
    best = next(row for row in rows if row["step"] == best_step)
    ending = "stopped by its patience" if held_out["stopped_early"] else "complete"
    series = {METRIC_LABELS[name]: [row[name] for row in rows] for name in names}
    return Report(
        title="Training of a reward model",
        subtitle=f"Trained on {data}, scored on {held_out_data}, {ending}. The checkpoint has the weights of step "
        f"{best_step}, with the smallest error: the mean of (1 - VOC) / 2, MAE and 1 - AUC.",
        key_metrics=tuple(KeyMetric(label=METRIC_LABELS[name], value=best[name]) for name in names),
        charts=(LineChart(title="Held-out episodes", x_label="evaluation", series=series, y_max=1.0),),
        tables=(
            ReportTable(
                title="Evaluations",
                header=("step", "schedule, %", *(METRIC_LABELS[name] for name in names), "kept"),
                rows=tuple(
                    (
                        str(row["step"]),
                        f"{row['percent']:.0f}",
                        *(f"{row[name]:.4f}" for name in names),
                        "yes" if row is best else "",
                    )
                    for row in rows
                ),
            ),
        ),
    )
