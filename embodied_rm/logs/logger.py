"""Metrics logger that passes rows to several writers."""

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, Protocol, Self

from embodied_rm.logs.event_file import EventFileWriter
from embodied_rm.logs.wandb_writer import start_wandb_run
from embodied_rm.run_folder import Reporter, RunFolder


class LogWriter(Protocol):
    """Writer of rows for one tool."""

    name: str  # name of the tool
    recoverable_errors: tuple[type[Exception], ...]  # exceptions for a failed write

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write the scalars of a step."""
        ...

    def close(self, *, failed: bool) -> None:
        """Flush and close; `failed`: the run ended with an exception."""
        ...


class MetricsLogger:
    """Passes rows to writers. A writer that fails is reported once and dropped; it never ends the run."""

    def __init__(self, writers: Sequence[LogWriter], reporter: Reporter) -> None:
        self._writers = list(writers)
        self._reporter = reporter

    def write(self, step: int, row: Mapping[str, Any]) -> None:
        """Write the numbers of a row. After a resume, the steps that are written again replace the earlier ones."""
        values = flatten_metrics(row)
        for writer in tuple(self._writers):
            try:
                writer.write(step, values)
            except writer.recoverable_errors as error:
                self._writers.remove(writer)
                self._reporter.log(f"{writer.name} failed; the run continues without it: {error}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *exc_info: object) -> None:
        for writer in self._writers:
            try:
                writer.close(failed=error_type is not None)
            except writer.recoverable_errors as write_error:
                self._reporter.log(f"{writer.name} failed to close; its last rows may be missing: {write_error}")


def open_logger(run: RunFolder, reporter: Reporter, wandb_project: str | None = None, rank: int = 0) -> MetricsLogger:
    """Open the metrics logger of a run, a context manager; only rank 0 writes.

    TensorBoard event files lie in the run folder; a W&B project gets the rows too. The reporter gets messages about
    failed writers.
    """
    if rank:
        return MetricsLogger((), reporter)
    wandb_writer = None if wandb_project is None else start_wandb_run(run, reporter, wandb_project)
    return MetricsLogger([EventFileWriter(run.path), *([] if wandb_writer is None else [wandb_writer])], reporter)


def flatten_metrics(row: Mapping[str, Any]) -> dict[str, float]:
    """Flatten the numbers of a row, nested ones by path ("seconds/act"). True is 1; other values are dropped."""
    flat: dict[str, float] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}/{key}": scalar for key, scalar in flatten_metrics(value).items()}
        elif isinstance(value, Real):
            flat[name] = float(value)
    return flat
