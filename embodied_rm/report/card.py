"""A model card: what a reward model was made from, what it reaches and where it fails, from the numbers themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COLUMNS = {
    "voc": "VOC",
    "voc_reversed": "reversed",
    "success_auc": "AUC",
    "mae": "MAE",
    "mae_failures": "MAE, failures",
    "step_accuracy": "step accuracy",
    "spread_correlation": "spread and error",
    "interval_coverage": "coverage",
    "ood_rate": "out of distribution",
}
"""Metric of `evaluate` -> column of the card; docs/metrics.md says what each is."""


def model_card(metrics: Mapping[str, Any]) -> str:
    """Markdown from the metrics of `embodied-rm ship`."""
    seen, trained, seconds = metrics["collect"], metrics["train"], metrics["seconds"]
    return "\n".join([
        "# Reward model of the tabletop tasks",
        "",
        "Made from nothing by `make checkpoint`, which wrote this card too: nothing in it is typed by hand.",
        "",
        "## Data and training",
        "",
        f"{seen['episodes']} simulated episodes ({seen['successes']} successes; {seen['frames']} frames)",
        "of the split `seen` (docs/zero_shot.md): scripted experts, and actors who fail on purpose; no real robot.",
        "Films are also shown backwards, under opposite instructions that their tasks name: nobody closes a drawer in",
        "these data, but the words for it are heard (docs/reward_model.md, \"Played backwards\").",
        f"{trained['parameters']:,} parameters. {seconds['total'] / 60:.0f} minutes in all, "
        f"{trained['seconds'] / 60:.0f} of them training, on {metrics['machine']}.",
        "",
        "## What it reaches, by split",
        "",
        *_splits(metrics["splits"]),
        "",
        "Spread and error: Spearman's correlation; coverage: of the interval",
        f"value +- {metrics['calibrate']['interval_scale']:.2f} (spread + 0.01), fitted to cover 90 % of the frames",
        f"of {metrics['calibrate']['episodes']} other episodes of `seen`; out of distribution: share of the frames",
        "that are less usual than 99 % of theirs. All columns: docs/metrics.md.",
        "Curves that look at no picture, on the same episodes:",
        "",
        *_baselines(metrics["splits"]),
        "",
        "## Task by task",
        "",
        *_tasks(metrics["splits"]),
        "",
        "## Audit",
        "",
        "{passed} cases passed, {failed} failed, {left_out} left out (docs/audit.md).".format(**metrics["audit"]),
        "",
        *_cases(metrics["cases"]),
        "",
        "## Limits",
        "",
        "Simulated primitives on one table, one lamp, cameras near their places. A row above that falls short is where "
        "it must not be trusted; on anything else audit it first: `embodied-rm audit`.",
        "",
    ])  # fmt: skip


def _splits(splits: Mapping[str, Any]) -> list[str]:
    return _table("split", {name: numbers["reward_model"] for name, numbers in splits.items()})


def _baselines(splits: Mapping[str, Any]) -> list[str]:
    blind = {
        f"_{name}_ ({split})": numbers
        for split, found in splits.items()
        for name, numbers in found["baselines"].items()
    }
    return _table("baseline", blind)


def _tasks(splits: Mapping[str, Any]) -> list[str]:
    rows = {
        f"{task} ({name})": numbers
        for name, found in splits.items()
        for task, numbers in found["tasks"].items()
        if name in ("seen", "unseen_task")
    }
    return _table("task", rows)


def _table(first: str, rows: Mapping[str, Mapping[str, float]]) -> list[str]:
    lines = [f"| {first} | {' | '.join(COLUMNS.values())} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, numbers in rows.items():
        cells = [f"{numbers[key]:.3f}" if key in numbers else "-" for key in COLUMNS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _cases(cases: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = ["| case | expected | measured | |", "|---|---|---|---|"]
    for name, case in cases.items():
        if "left_out" in case:
            lines.append(f"| {name} | {case['left_out']} | - | left out |")
            continue
        verdict = {True: "passed", False: "**failed**", None: ""}[case["passed"]]
        lines.append(f"| {name} | {case['expected']} | {case['measured']:.3g} | {verdict} |")
    return lines
