"""The reporter of the command line: bars that appear after two seconds, aligned tables, plain lines off a terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sized
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from embodied_rm.cli.pace import Pace

T = TypeVar("T")

PATIENCE = 2.0
"""Seconds of work before anything is drawn for it."""
PLAIN_WIDTH = 120
"""Columns of a help page that goes into a file or a pipe."""
HEARTBEAT = 30.0
"""Seconds between the plain lines of a long job whose output is no terminal."""


class TimeLeft(ProgressColumn):
    """How long the job will still take, by its `pace`."""

    def render(self, task: Task) -> Text:
        left = task.fields["pace"].left(task.total, time.monotonic())
        return Text("" if left is None else f"{clock(left)} left")


class ConsoleReporter:
    """Draws on a terminal; writes plain lines, at most one every `heartbeat` seconds a job, anywhere else."""

    def __init__(
        self, console: Console | None = None, *, patience: float = PATIENCE, heartbeat: float = HEARTBEAT
    ) -> None:
        self.console = console or make_console()
        self._patience = patience
        self._heartbeat = heartbeat
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=32),
            MofNCompleteColumn(),
            TimeLeft(),
            console=self.console,
            transient=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A generator that was left half-way is closed only when collected: the bars must not outlive the command.
        self._stop()

    def track(self, items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
        """The items; a bar (or, off a terminal, a line now and then) once the work has lasted over two seconds."""
        if total is None and isinstance(items, Sized):
            total = len(items)
        return (
            self._bar(items, description, total) if self.console.is_terminal else self._lines(items, description, total)
        )

    def table(self, title: str, rows: Mapping[str, object]) -> None:
        """One aligned two-column table."""
        if not self.console.is_terminal:
            width = max((len(key) for key in rows), default=0)
            self._plain(title)
            for key, value in rows.items():
                self._plain(f"  {key:<{width}}  {show(value)}")
            return
        grid = Table(title=title, title_justify="left", title_style="bold", box=None, show_header=False, pad_edge=False)
        grid.add_column(style="cyan", no_wrap=True)
        grid.add_column(overflow="fold")
        for key, value in rows.items():
            grid.add_row(f"  {key}", Text(show(value)))
        self.console.print(grid)

    def note(self, text: str) -> None:
        """One line of text."""
        self._plain(text)

    def _plain(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _bar(self, items: Iterable[T], description: str, total: int | None) -> Iterator[T]:
        pace = Pace(time.monotonic())
        task = self._progress.add_task(description, total=total, visible=False, pace=pace)
        # A timer, not a check between items: the first item alone may take minutes.
        reveal = threading.Timer(self._patience, self._reveal, (task,))
        reveal.daemon = True
        started = time.monotonic()
        reveal.start()
        try:
            for item in items:
                yield item
                pace.step(time.monotonic())
                self._progress.advance(task)
        finally:
            reveal.cancel()
            self._finish(task, description, time.monotonic() - started)

    def _reveal(self, task: TaskID) -> None:
        if task in self._progress.task_ids:
            self._progress.update(task, visible=True)
            self._progress.start()

    def _finish(self, task: TaskID, description: str, seconds: float) -> None:
        completed = int(self._progress.tasks[self._progress.task_ids.index(task)].completed)
        self._progress.remove_task(task)
        if not any(other.visible for other in self._progress.tasks):
            self._stop()
        if seconds >= self._patience:
            self._plain(f"{description}: {completed} in {clock(seconds)}")

    def _stop(self) -> None:
        # Stopping bars that never started would write an empty line.
        if self._progress.live.is_started:
            self._progress.stop()

    def _lines(self, items: Iterable[T], description: str, total: int | None) -> Iterator[T]:
        started = spoken = time.monotonic()
        pace = Pace(started)
        for item in items:
            yield item
            now = time.monotonic()
            pace.step(now)
            if now - spoken >= self._heartbeat and pace.done != total:
                spoken = now
                left = pace.left(total, now)
                self._plain(f"{description}: {progress_words(pace.done, total, now - started, left)}")
        seconds = time.monotonic() - started
        if seconds >= self._patience:
            self._plain(f"{description}: {pace.done} in {clock(seconds)}")


def make_console(*, stderr: bool = False) -> Console:
    """Standard output as it is: colours and bars on a terminal, text of any length and no control code elsewhere."""
    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=PLAIN_WIDTH)


def progress_words(done: int, total: int | None, seconds: float, left: float | None) -> str:
    """How far a job is after so many seconds, e.g. "30 of 120, 45 s left"."""
    if total is None or left is None:
        return f"{done} after {clock(seconds)}"
    return f"{done} of {total}, {clock(left)} left"


def clock(seconds: float) -> str:
    """A duration for people: "4.2 s", "3 min 05 s", "1 h 02 min"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def show(value: object) -> str:
    """A value for a table cell: four significant digits, yes or no, lists with commas."""
    match value:
        case bool():
            return "yes" if value else "no"
        case None:
            return "-"
        case float():
            return f"{value:.4g}"
        case int():
            return f"{value:,}"
        case str() | Path():
            return str(value)
        case Mapping():
            return ", ".join(f"{key} {show(item)}" for key, item in value.items())
        case Iterable():
            return ", ".join(show(item) for item in value)
        case _:
            return str(value)
