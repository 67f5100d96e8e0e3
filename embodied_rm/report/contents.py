"""Contents of a report as plain data, without layout."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from embodied_rm.errors import UserError
from embodied_rm.types import Array, Episode


@dataclass(frozen=True, kw_only=True)
class KeyMetric:
    """One headline number."""

    label: str
    value: float
    target: str = ""  # target of the value, e.g. "at least 0.95"
    passed: bool | None = None  # whether the target is met; None: no target


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
    """Success rates of one task, in chronological order, e.g. cloned and refined."""

    task: str
    rates: Mapping[str, SuccessRate]


@dataclass(frozen=True, kw_only=True)
class LineChart:
    """Line chart of named series over a common axis that starts at 0. None leaves a gap."""

    title: str
    x_label: str
    series: Mapping[str, list[float | None]]
    y_max: float | None = None  # lower bound of the vertical axis' end, e.g. 1 for rates
    bands: Mapping[str, tuple[list[float], list[float]]] = field(default_factory=dict)
    """Series -> lower and upper bounds, for series that have them."""


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """Table of text cells; `code` in backticks."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise UserError(f"{self.title}: a row has {len(row)} cells, the table {len(self.header)} columns")


@dataclass(frozen=True, kw_only=True)
class EpisodePanel:
    """One episode with the predictions of a model, if any."""

    episode: Episode
    progress: Array | None = None  # float32 [T] in [0, 1]: predicted progress
    success_prob: Array | None = None  # float32 [T] in [0, 1]: predicted probability of success

    def __post_init__(self) -> None:
        for name, values in (("progress", self.progress), ("success", self.success_prob)):
            if values is not None and len(values) != len(self.episode):
                raise UserError(
                    f"{self.episode.name}: {name} has {len(values)} rows, the video has {len(self.episode)} frames"
                )


@dataclass(frozen=True, kw_only=True)
class ReportCase:
    """One test case with its result."""

    name: str
    procedure: str  # description of the test
    metric: str  # name of the value
    expected: str
    value: float | None = None  # None: skipped
    num_trials: int = 0  # number of trials
    passed: bool | None = None  # None: skipped, or without an expectation
    note: str = ""  # consequence of a failure, or the data that the case needs


@dataclass(frozen=True, kw_only=True)
class Report:
    """Contents of one page, from top to bottom. Empty parts are omitted."""

    title: str
    subtitle: str = ""
    key_metrics: tuple[KeyMetric, ...] = ()
    cases: tuple[ReportCase, ...] = ()
    success_rates: tuple[TaskSuccess, ...] = ()
    charts: tuple[LineChart, ...] = ()
    tables: tuple[ReportTable, ...] = ()
    contact_sheet: bytes = b""  # png with images of several episodes
    episodes: tuple[EpisodePanel, ...] = ()
    details: Mapping[str, object] = field(default_factory=dict)  # settings and numbers for the table at the bottom
