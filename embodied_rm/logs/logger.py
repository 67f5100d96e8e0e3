"""The log of a run: every row of numbers, handed to each tool that is to draw it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from types import TracebackType
from typing import Any, Protocol, Self

from embodied_rm.logs.event_file import EventFileWriter
from embodied_rm.logs.wandb_writer import start_wandb_run
from embodied_rm.run_folder import Reporter, RunFolder


class LogWriter(Protocol):
    """What takes rows down for one tool."""

    name: str
    """Of the tool."""
    recoverable_errors: tuple[type[Exception], ...]
    """What it raises when it cannot write."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Take down the numbers of a step."""
        ...

    def close(self, *, failed: bool) -> None:
        """Write what is left; `failed`: the run did not come to its end."""
        ...


class MetricsLogger:
    """Rows on their way to some writers. One that cannot write is told of once and left out: it never ends a run."""

    def __init__(self, writers: Sequence[LogWriter], reporter: Reporter) -> None:
        self._writers = list(writers)
        self._reporter = reporter

    def write(self, step: int, row: Mapping[str, Any]) -> None:
        """Take down the numbers in a row. A step that a run wrote before it died, and what followed, is replaced."""
        values = flatten_metrics(row)
        for writer in tuple(self._writers):
            try:
                writer.write(step, values)
            except writer.recoverable_errors as error:
                self._writers.remove(writer)
                self._reporter.log(f"{writer.name} takes no more rows, the run goes on without it: {error}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for writer in self._writers:
            try:
                writer.close(failed=error_type is not None)
            except writer.recoverable_errors as write_error:
                self._reporter.log(f"{writer.name} may lack the last rows: {write_error}")


def open_logger(run: RunFolder, reporter: Reporter, wandb_project: str | None = None, rank: int = 0) -> MetricsLogger:
    """The log of a run, to be closed by `with`: TensorBoard's event files in its folder, and where `wandb` names a
    project, a run of Weights & Biases. Of several processes the one of rank 0 writes."""
    if rank:
        return MetricsLogger((), reporter)
    wandb_writer = None if wandb_project is None else start_wandb_run(run, reporter, wandb_project)
    return MetricsLogger([EventFileWriter(run.path), *([] if wandb_writer is None else [wandb_writer])], reporter)


def flatten_metrics(row: Mapping[str, Any]) -> dict[str, float]:
    """Every number of a row, those inside by their path, "seconds/act"; yes is 1. What is no number is left out."""
    flat: dict[str, float] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}/{key}": scalar for key, scalar in flatten_metrics(value).items()}
        elif isinstance(value, Real):
            flat[name] = float(value)
    return flat
