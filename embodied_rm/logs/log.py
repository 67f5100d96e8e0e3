"""The log of a run: every row of numbers, handed to each tool that is to draw it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from types import TracebackType
from typing import Any, Protocol, Self

from embodied_rm.logs.event_file import EventFile
from embodied_rm.logs.weights_and_biases import start_run
from embodied_rm.run import Reporter, RunFolder


class Writer(Protocol):
    """What takes rows down for one tool."""

    name: str
    """Of the tool."""
    faults: tuple[type[Exception], ...]
    """What it raises when it cannot write."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Take down the numbers of a step."""
        ...

    def close(self, *, failed: bool) -> None:
        """Write what is left; `failed`: the run did not come to its end."""
        ...


class Log:
    """Rows on their way to some writers. One that cannot write is told of once and left out: it never ends a run."""

    def __init__(self, writers: Sequence[Writer], reporter: Reporter) -> None:
        self._writers = list(writers)
        self._reporter = reporter

    def write(self, step: int, row: Mapping[str, Any]) -> None:
        """Take down the numbers in a row. A step that a run wrote before it died, and what followed, is replaced."""
        values = numbers(row)
        for writer in tuple(self._writers):
            try:
                writer.write(step, values)
            except writer.faults as fault:
                self._writers.remove(writer)
                self._reporter.note(f"{writer.name} takes no more rows, the run goes on without it: {fault}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._writers:
            try:
                writer.close(failed=kind is not None)
            except writer.faults as fault:
                self._reporter.note(f"{writer.name} may lack the last rows: {fault}")


def open_log(run: RunFolder, reporter: Reporter, wandb: str | None = None, rank: int = 0) -> Log:
    """The log of a run, to be closed by `with`: TensorBoard's event files in its folder, and where `wandb` names a
    project, a run of Weights & Biases. Of several processes the one of rank 0 writes."""
    if rank:
        return Log((), reporter)
    online = None if wandb is None else start_run(run, reporter, wandb)
    return Log([EventFile(run.path), *([] if online is None else [online])], reporter)


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Every number of a row, those inside by their path, "seconds/act"; yes is 1. What is no number is left out."""
    found: dict[str, float] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            found |= {f"{name}/{inner}": number for inner, number in numbers(value).items()}
        elif isinstance(value, Real):
            found[name] = float(value)
    return found
