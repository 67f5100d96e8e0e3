"""A comparison of reward rules as metrics, as a report and as Markdown tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isnan
from typing import Any

from embodied_rm.experiments.comparison import (
    CellResult,
    filter_by_rule,
    group_by_task,
    group_by_task_with_total,
    phase_time_shares,
    ranking_agreement,
    rollout_ratio,
    success_band,
    success_difference,
    success_gain,
    summarize_cells,
)
from embodied_rm.report import LineChart, Report, ReportTable
from embodied_rm.report.markdown import markdown_table

SuccessBand = tuple[list[float], list[float], list[float]]  # mean, lower and upper bound of success per iteration
SUMMARY_DIGITS = {
    "cloned_success": 2,
    "refined_success": 3,
    "worst_seed": 3,
    "num_reached": 0,
    "rollouts_to_target": 0,
    "success_after_150": 2,
    "hover_rate": 2,
    "seeds_with_alarm": 0,
    "ranking_agreement": 2,
    "seconds_per_seed": 0,
}
"""Key of `summarize_cells`, one column per key -> number of decimals."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The cells of all rules and tasks; the first rule is compared with each of the others."""

    rules: tuple[str, ...]
    target_success: float
    num_seeds: int
    cells: Sequence[CellResult]

    def as_dict(self) -> dict[str, Any]:
        """Return the content of metrics.json."""
        return {
            "tasks": {task: self._summaries(cells) for task, cells in group_by_task_with_total(self.cells).items()},
            "gains": [{"tasks": task, "rule": rule, **_without_nan(stats)} for task, rule, stats in self._gains()],
            "ranking_agreement": {task: ranking_agreement(cells) for task, cells in group_by_task(self.cells).items()},
            "pairs": [
                {"tasks": task, "rule": self.rules[0], "other": rule, **_without_nan(stats)}
                for task, rule, stats in self._pairs()
            ],
            "phase_time_shares": {rule: phase_time_shares(filter_by_rule(self.cells, rule)) for rule in self.rules},
            "curves": {
                task: {rule: dict(zip(("mean", "low", "high"), band, strict=True)) for rule, band in rules.items()}
                for task, rules in self.success_bands().items()
            },
            "cells": [asdict(cell) for cell in self.cells],
        }

    def success_bands(self) -> dict[str, dict[str, SuccessBand]]:
        """Return task -> rule -> mean and bounds of success, starting with the cloned policies."""
        return {
            task: {rule: success_band(filter_by_rule(cells, rule)) for rule in self.rules}
            for task, cells in group_by_task(self.cells).items()
        }

    def build_report(self) -> Report:
        """Return the report of the run folder."""
        return Report(
            title="Comparison of reward rules",
            subtitle=f"{self.num_seeds} seeds per rule, from the same cloned policies; success by the simulator.",
            charts=tuple(
                LineChart(
                    title=f"{task}: success",
                    x_label="iteration",
                    series={rule: list(mean) for rule, (mean, _, _) in rules.items()},
                    y_max=1.0,
                    bands={rule: (low, high) for rule, (_, low, high) in rules.items()},
                )
                for task, rules in self.success_bands().items()
            ),
            tables=self.tables(),
        )

    def tables(self) -> tuple[ReportTable, ...]:
        """Return the tables of results."""
        return (
            self._success_table(),
            self._gains_table(),
            *([self._pairs_table()] if len(self.rules) > 1 else []),
            self._time_table(),
        )

    def _success_table(self) -> ReportTable:
        header = ["task", "rule", "success source", "cloned", "refined", "worst seed"]
        header += [f"seeds that reached {self.target_success:g}", "rollouts to it", "after 150 episodes"]
        header += ["hover rate", "seeds with an alarm", "ranking agreement", "seconds per seed"]
        rows = [
            (
                task,
                f"`{rule}`",
                filter_by_rule(cells, rule)[0].success_source,
                *(_format_value(name, row[name]) for name in SUMMARY_DIGITS),
            )
            for task, cells in group_by_task_with_total(self.cells).items()
            for rule, row in self._summaries(cells).items()
        ]
        return ReportTable(title="Success", header=tuple(header), rows=tuple(rows))

    def _gains_table(self) -> ReportTable:
        rows = [
            (task, f"`{rule}`", f"{stats['success']:+.3f}", _format_interval(stats))
            for task, rule, stats in self._gains()
        ]
        return ReportTable(title="Gains", header=("task", "rule", "refined minus cloned", "95 %"), rows=tuple(rows))

    def _pairs_table(self) -> ReportTable:
        rows = []
        for task, rule, stats in self._pairs():
            rollouts, p = f"{stats['rollouts_to_target']:.2f}", "-" if isnan(stats["p"]) else f"{stats['p']:.4f}"
            success = (f"{stats['success']:+.3f}", _format_interval(stats))
            rows.append((task, f"`{self.rules[0]}` / `{rule}`", rollouts, p, *success))
        rollouts_column = f"ratio of rollouts to {self.target_success:g}"
        head = ("task", "rule / other", rollouts_column, "p", "difference of success", "95 %")
        return ReportTable(title="Pairs", header=head, rows=tuple(rows))

    def _time_table(self) -> ReportTable:
        shares = {rule: phase_time_shares(filter_by_rule(self.cells, rule)) for rule in self.rules}
        rows = [(f"`{rule}`", *(f"{share:.0%}" for share in row.values())) for rule, row in shares.items()]
        return ReportTable(title="Time", header=("rule", *shares[self.rules[0]]), rows=tuple(rows))

    def _summaries(self, cells: Sequence[CellResult]) -> dict[str, dict[str, float | int | None]]:
        return {rule: summarize_cells(filter_by_rule(cells, rule), self.target_success) for rule in self.rules}

    def _gains(self) -> Iterator[tuple[str, str, dict[str, float]]]:
        """Yield (task or "all", rule, gain in success with its interval)."""
        for task, cells in group_by_task_with_total(self.cells).items():
            for rule in self.rules:
                success, low, high = success_gain(filter_by_rule(cells, rule))
                yield task, rule, {"success": success, "low": low, "high": high}

    def _pairs(self) -> Iterator[tuple[str, str, dict[str, float]]]:
        """Yield (task or "all", other rule, statistics of the first rule against it)."""
        for task, cells in group_by_task_with_total(self.cells).items():
            for rule in self.rules[1:]:
                own_cells, other_cells = filter_by_rule(cells, self.rules[0]), filter_by_rule(cells, rule)
                rollouts, p = rollout_ratio(own_cells, other_cells, self.target_success)
                success, low, high = success_difference(own_cells, other_cells)
                yield task, rule, {"rollouts_to_target": rollouts, "p": p, "success": success, "low": low, "high": high}


def _without_nan(numbers: Mapping[str, float]) -> dict[str, float | None]:
    return {name: None if isnan(number) else number for name, number in numbers.items()}


def _format_value(name: str, value: float | int | None) -> str:
    return "-" if value is None else f"{value:.{SUMMARY_DIGITS[name]}f}"


def _format_interval(stats: Mapping[str, float]) -> str:
    return "-" if isnan(stats["low"]) else f"{stats['low']:+.3f} to {stats['high']:+.3f}"


def markdown_tables(tables: Sequence[ReportTable]) -> list[str]:
    """Return tables as lines of Markdown, separated by empty lines."""
    return [line for table in tables for line in ("", *markdown_table(table.header, table.rows))][1:]
