"""What a report can show. Plain data: the page decides how it looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from embodied_rm.errors import UserError
from embodied_rm.types import Array, Episode


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One headline number."""

    label: str
    value: float
    target: str = ""
    """What it was meant to reach, e.g. "at least 0.95"."""
    met: bool | None = None
    """Whether it did; None: nothing was promised."""


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A success rate with its 95 % interval, all in [0, 1]."""

    value: float
    low: float
    high: float
    episodes: int

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.value <= self.high <= 1:
            raise UserError(f"a rate needs 0 <= low <= value <= high <= 1, got {self.low}, {self.value}, {self.high}")


@dataclass(frozen=True, kw_only=True)
class SuccessRow:
    """The success rates of one task, in the order in which they came about, e.g. cloned and refined."""

    task: str
    rates: Mapping[str, Rate]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One chart: named lines over a common axis that starts at 0. A value of None leaves a gap."""

    title: str
    x_label: str
    lines: Mapping[str, list[float | None]]
    top: float | None = None
    """Where the vertical axis ends at least, e.g. 1 for rates."""
    bands: Mapping[str, tuple[list[float], list[float]]] = field(default_factory=dict)
    """Lower and upper bounds of those lines that have any."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Numbers side by side; `code` in backticks."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.head):
                raise UserError(f"{self.title}: a row of {len(row)} cells under {len(self.head)} columns")


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One episode, beside what a model said of it if one was asked."""

    episode: Episode
    progress: Array | None = None
    """float32 [T] in [0, 1]: the model's progress."""
    success: Array | None = None
    """float32 [T] in [0, 1]: the model's probability that the task is done."""

    def __post_init__(self) -> None:
        for name, column in (("progress", self.progress), ("success", self.success)):
            if column is not None and len(column) != len(self.episode):
                raise UserError(
                    f"{self.episode.name}: {name} has {len(column)} rows, the video has {len(self.episode)} frames"
                )


@dataclass(frozen=True, kw_only=True)
class Check:
    """One expectation and what came of it."""

    name: str
    done: str
    """What was tried."""
    measured: str
    """What the value is."""
    expected: str
    value: float | None = None
    """None: it could not be tried."""
    n: int = 0
    """Tries."""
    met: bool | None = None
    """None: not tried, or nothing was expected."""
    why: str = ""
    """What follows from a miss, or what would be needed to try it."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """One page, from the top down. Parts that are empty are left out."""

    title: str
    subtitle: str = ""
    figures: tuple[Figure, ...] = ()
    checks: tuple[Check, ...] = ()
    success: tuple[SuccessRow, ...] = ()
    curves: tuple[Curve, ...] = ()
    tables: tuple[Table, ...] = ()
    panels: tuple[Panel, ...] = ()
    details: Mapping[str, object] = field(default_factory=dict)
    """Settings and numbers for the table at the foot."""
