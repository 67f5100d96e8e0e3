"""What a report can show. Plain data: the page decides how it looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from embodied_rm.errors import UserError
from embodied_rm.types import Array, Episode


@dataclass(frozen=True, kw_only=True)
class KeyMetric:
    """One headline number."""

    label: str
    value: float
    target: str = ""
    """What it was meant to reach, e.g. "at least 0.95"."""
    passed: bool | None = None
    """Whether it did; None: nothing was promised."""


@dataclass(frozen=True, kw_only=True)
class SuccessRate:
    """A success rate with its 95 % interval, all in [0, 1]."""

    value: float
    low: float
    high: float
    episodes: int

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.value <= self.high <= 1:
            raise UserError(f"a rate needs 0 <= low <= value <= high <= 1, got {self.low}, {self.value}, {self.high}")


@dataclass(frozen=True, kw_only=True)
class TaskSuccess:
    """The success rates of one task, in the order in which they came about, e.g. cloned and refined."""

    task: str
    rates: Mapping[str, SuccessRate]


@dataclass(frozen=True, kw_only=True)
class LineChart:
    """One chart: named lines over a common axis that starts at 0. A value of None leaves a gap."""

    title: str
    x_label: str
    series: Mapping[str, list[float | None]]
    y_max: float | None = None
    """Where the vertical axis ends at least, e.g. 1 for rates."""
    bands: Mapping[str, tuple[list[float], list[float]]] = field(default_factory=dict)
    """Lower and upper bounds of those lines that have any."""


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """Numbers side by side; `code` in backticks."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise UserError(f"{self.title}: a row of {len(row)} cells under {len(self.header)} columns")


@dataclass(frozen=True, kw_only=True)
class EpisodePanel:
    """One episode, beside what a model said of it if one was asked."""

    episode: Episode
    progress: Array | None = None
    """float32 [T] in [0, 1]: the model's progress."""
    success_prob: Array | None = None
    """float32 [T] in [0, 1]: the model's probability that the task is done."""

    def __post_init__(self) -> None:
        for name, values in (("progress", self.progress), ("success", self.success_prob)):
            if values is not None and len(values) != len(self.episode):
                raise UserError(
                    f"{self.episode.name}: {name} has {len(values)} rows, the video has {len(self.episode)} frames"
                )


@dataclass(frozen=True, kw_only=True)
class ReportCase:
    """One expectation and what came of it."""

    name: str
    procedure: str
    """What was tried."""
    metric: str
    """What the value is."""
    expected: str
    value: float | None = None
    """None: it could not be tried."""
    num_trials: int = 0
    """Tries."""
    passed: bool | None = None
    """None: not tried, or nothing was expected."""
    note: str = ""
    """What follows from a miss, or what would be needed to try it."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """One page, from the top down. Parts that are empty are left out."""

    title: str
    subtitle: str = ""
    key_metrics: tuple[KeyMetric, ...] = ()
    cases: tuple[ReportCase, ...] = ()
    success_rates: tuple[TaskSuccess, ...] = ()
    charts: tuple[LineChart, ...] = ()
    tables: tuple[ReportTable, ...] = ()
    episodes: tuple[EpisodePanel, ...] = ()
    details: Mapping[str, object] = field(default_factory=dict)
    """Settings and numbers for the table at the foot."""
