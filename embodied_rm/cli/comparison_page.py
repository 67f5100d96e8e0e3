"""What is told of reward rules side by side: as numbers, as a report, and as a section of a Markdown page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isnan
from typing import Any

from embodied_rm.cli.comparison import (
    Cell,
    agreement,
    band_of,
    by_task,
    by_task_and_all,
    difference,
    gain,
    of_rule,
    ratio,
    stages,
    summary,
)
from embodied_rm.report import Curve, Report, Table

Band = tuple[list[float], list[float], list[float]]
"""Mean, lower and upper bound of success from iteration to iteration."""
COLUMNS = {
    "cloned": 2, "refined": 3, "worst": 3, "reached": 0, "rollouts": 0, "after_150": 2, "hovers": 2, "alarms": 0,
    "agreement": 2, "seconds": 0,
}  # fmt: skip
"""Keys of `summary`, a column each -> digits behind the point."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The cells of some rules on some tasks; the first rule is compared with each of the others."""

    rules: tuple[str, ...]
    level: float
    seeds: int
    cells: Sequence[Cell]

    def numbers(self) -> dict[str, Any]:
        """For metrics.json."""
        return {
            "tasks": {task: self._summaries(some) for task, some in by_task_and_all(self.cells).items()},
            "gains": [{"tasks": task, "rule": rule, **_without_nan(found)} for task, rule, found in self._gains()],
            "agreement": {task: agreement(some) for task, some in by_task(self.cells).items()},
            "pairs": [
                {"tasks": task, "rule": self.rules[0], "other": rule, **_without_nan(found)}
                for task, rule, found in self._pairs()
            ],
            "stages": {rule: stages(of_rule(self.cells, rule)) for rule in self.rules},
            "curves": {
                task: {rule: dict(zip(("mean", "low", "high"), band, strict=True)) for rule, band in rules.items()}
                for task, rules in self.bands().items()
            },
            "cells": [asdict(cell) for cell in self.cells],
        }

    def bands(self) -> dict[str, dict[str, Band]]:
        """Task -> rule -> mean and bounds of success, from what was cloned on."""
        return {
            task: {rule: band_of(of_rule(some, rule)) for rule in self.rules}
            for task, some in by_task(self.cells).items()
        }

    def story(self) -> Report:
        """The page of the run folder."""
        return Report(
            title="Reward rules side by side",
            subtitle=f"{self.seeds} seeds each, from the same cloned policies; success is the simulator's.",
            curves=tuple(
                Curve(
                    title=f"{task}: success",
                    x_label="iteration",
                    lines={rule: list(mean) for rule, (mean, _, _) in rules.items()},
                    top=1.0,
                    bands={rule: (low, high) for rule, (_, low, high) in rules.items()},
                )
                for task, rules in self.bands().items()
            ),
            tables=self.tables(),
        )

    def tables(self) -> tuple[Table, ...]:
        """The results side by side."""
        return (self._success(), self._raised(), *([self._beside()] if len(self.rules) > 1 else []), self._spent())

    def _success(self) -> Table:
        figures = ("cloned", "refined", "worst seed", f"reached {self.level:g}", "rollouts", "after 150 episodes")
        others = ("hovers", "seeds with an alarm", "agreement", "seconds a seed")
        rows = [
            (task, f"`{rule}`", of_rule(some, rule)[0].success, *(_told(name, row[name]) for name in COLUMNS))
            for task, some in by_task_and_all(self.cells).items()
            for rule, row in self._summaries(some).items()
        ]
        return Table(title="Success", head=("task", "rule", "success by", *figures, *others), rows=tuple(rows))

    def _raised(self) -> Table:
        rows = [
            (task, f"`{rule}`", f"{found['success']:+.3f}", _interval(found)) for task, rule, found in self._gains()
        ]
        return Table(title="Gains", head=("task", "rule", "refined more than cloned", "95 %"), rows=tuple(rows))

    def _beside(self) -> Table:
        fewer = f"rollouts to {self.level:g}, times those of the other"
        rows = [
            (
                task,
                f"`{self.rules[0]}` / `{rule}`",
                f"{found['rollouts']:.2f}",
                _known(found["p"], ".4f"),
                f"{found['success']:+.3f}",
                _interval(found),
            )
            for task, rule, found in self._pairs()
        ]
        head = ("task", "rule / other", fewer, "p", "success more than the other's", "95 %")
        return Table(title="Pairs", head=head, rows=tuple(rows))

    def _spent(self) -> Table:
        spent = {rule: stages(of_rule(self.cells, rule)) for rule in self.rules}
        rows = [(f"`{rule}`", *(f"{part:.0%}" for part in parts.values())) for rule, parts in spent.items()]
        return Table(title="Time", head=("time", *spent[self.rules[0]]), rows=tuple(rows))

    def _summaries(self, cells: Sequence[Cell]) -> dict[str, dict[str, float | int | None]]:
        return {rule: summary(of_rule(cells, rule), self.level) for rule in self.rules}

    def _gains(self) -> Iterator[tuple[str, str, dict[str, float]]]:
        """(task, or all of them; a rule; by how much it raised success)."""
        for task, some in by_task_and_all(self.cells).items():
            for rule in self.rules:
                success, low, high = gain(of_rule(some, rule))
                yield task, rule, {"success": success, "low": low, "high": high}

    def _pairs(self) -> Iterator[tuple[str, str, dict[str, float]]]:
        """(task, or all of them; a rule; how the first one does beside it)."""
        for task, some in by_task_and_all(self.cells).items():
            for rule in self.rules[1:]:
                mine, theirs = of_rule(some, self.rules[0]), of_rule(some, rule)
                rollouts, p = ratio(mine, theirs, self.level)
                success, low, high = difference(mine, theirs)
                yield task, rule, {"rollouts": rollouts, "p": p, "success": success, "low": low, "high": high}


def _without_nan(numbers: Mapping[str, float]) -> dict[str, float | None]:
    return {name: None if isnan(number) else number for name, number in numbers.items()}


def _told(name: str, value: float | int | None) -> str:
    return "-" if value is None else f"{value:.{COLUMNS[name]}f}"


def _known(value: float, digits: str) -> str:
    """A dash for what one seed cannot tell."""
    return "-" if isnan(value) else f"{value:{digits}}"


def _interval(found: Mapping[str, float]) -> str:
    return "-" if isnan(found["low"]) else f"{found['low']:+.3f} to {found['high']:+.3f}"


def markdown(tables: Sequence[Table]) -> list[str]:
    """Tables as lines of Markdown, an empty one between two."""
    blocks = [
        [
            f"| {' | '.join(table.head)} |",
            "|---" * len(table.head) + "|",
            *(f"| {' | '.join(row)} |" for row in table.rows),
        ]
        for table in tables
    ]
    return [line for block in blocks for line in ("", *block)][1:]
