"""The reporter of the command line: progress bars and aligned tables on a terminal, plain lines elsewhere."""

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sized
from itertools import dropwhile
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from embodied_rm.cli.terminal_text import escape_controls

T = TypeVar("T")

BAR_DELAY_S = 2.0  # delay before a job draws anything, s
PLAIN_WIDTH_COLUMNS = 120  # width of output that goes into a file or a pipe, characters
HEARTBEAT_INTERVAL_S = 30.0  # time between the plain lines of a long job without a terminal, s
MAX_DURATIONS = 1000  # number of the latest items whose durations are kept
MIN_DURATION_FRACTION = 0.01
"""The first items, while shorter than this fraction of the longest one (or of the current one), count as cached."""


class EtaEstimator:
    """Durations of the items of a job; all times are seconds of the same clock."""

    def __init__(self, now_s: float) -> None:
        self._item_start_s = now_s
        self._durations_s: deque[float] = deque(maxlen=MAX_DURATIONS)
        self.num_done = 0

    def finish_item(self, now_s: float) -> None:
        """Record the end of an item."""
        self._durations_s.append(now_s - self._item_start_s)
        self._item_start_s = now_s
        self.num_done += 1

    def remaining_s(self, total: float | None, now_s: float) -> float | None:
        """Return the seconds until `total` items are done, by the mean duration after the cached ones; None if unknown.

        Later short items count: several percents of a training end at once where one step is longer than a percent.
        """
        limit_s = MIN_DURATION_FRACTION * max(now_s - self._item_start_s, *self._durations_s, 0.0)
        uncached_s = list(dropwhile(lambda duration_s: duration_s < limit_s, self._durations_s))
        if total is None or not uncached_s:
            return None
        return max(total - self.num_done, 0) * sum(uncached_s) / len(uncached_s)


class TimeLeftColumn(ProgressColumn):
    """The time that a job still needs, from the task field `eta`."""

    def render(self, task: Task) -> Text:
        remaining_s = task.fields["eta"].remaining_s(task.total, time.monotonic())
        return Text("" if remaining_s is None else f"{format_duration(remaining_s)} left")


class ConsoleReporter:
    """Draws on a terminal; elsewhere writes plain lines, at most one per job every `heartbeat_s` seconds."""

    def __init__(
        self,
        console: Console | None = None,
        *,
        bar_delay_s: float = BAR_DELAY_S,
        heartbeat_s: float = HEARTBEAT_INTERVAL_S,
    ) -> None:
        self.console = console or make_console()
        self._bar_delay_s, self._heartbeat_s = bar_delay_s, heartbeat_s
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=32),
            MofNCompleteColumn(),
            TimeLeftColumn(),
        )
        self._progress = Progress(*columns, console=self.console, transient=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # An abandoned generator is closed only when collected; its bar must not outlive the command.
        self._stop_bars()

    def track(self, items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
        """Yield the items; report progress once the work has taken longer than `bar_delay_s`."""
        if total is None and isinstance(items, Sized):
            total = len(items)
        track = self._track_with_bar if self.console.is_terminal else self._track_with_lines
        return track(items, escape_controls(description), total)

    def table(self, title: str, rows: Mapping[str, object]) -> None:
        """Print an aligned two-column table."""
        cells = [(escape_controls(key), escape_controls(format_value(value))) for key, value in rows.items()]
        if not self.console.is_terminal:
            width = max((len(key) for key, _ in cells), default=0)
            self._print_line(title)
            for key, value in cells:
                self._print_line(f"  {key:<{width}}  {value}")
            return
        grid = Table(title=title, title_justify="left", title_style="bold", box=None, show_header=False, pad_edge=False)
        grid.add_column(style="cyan", no_wrap=True)
        grid.add_column(overflow="fold")
        for key, value in cells:
            grid.add_row(Text(f"  {key}"), Text(value))
        self.console.print(grid)

    def log(self, text: str) -> None:
        """Print one line of text."""
        self._print_line(text)

    def _print_line(self, text: str) -> None:
        print_text(self.console, escape_controls(text))

    def _track_with_bar(self, items: Iterable[T], description: str, total: int | None) -> Iterator[T]:
        eta = EtaEstimator(time.monotonic())
        task = self._progress.add_task(description, total=total, visible=False, eta=eta)
        # A timer instead of a check between items: the first item alone may take minutes.
        timer = threading.Timer(self._bar_delay_s, self._show_bar, (task,))
        timer.daemon = True
        start_s = time.monotonic()
        timer.start()
        try:
            for item in items:
                yield item
                eta.finish_item(time.monotonic())
                self._progress.advance(task)
        finally:
            timer.cancel()
            self._finish_bar(task, description, time.monotonic() - start_s)

    def _show_bar(self, task: TaskID) -> None:
        if task in self._progress.task_ids:
            self._progress.update(task, visible=True)
            self._progress.start()

    def _finish_bar(self, task: TaskID, description: str, seconds: float) -> None:
        completed = int(self._progress.tasks[self._progress.task_ids.index(task)].completed)
        self._progress.remove_task(task)
        if not any(other.visible for other in self._progress.tasks):
            self._stop_bars()
        if seconds >= self._bar_delay_s:
            self._print_line(f"{description}: {completed} in {format_duration(seconds)}")

    def _stop_bars(self) -> None:
        # Stopping a display that never started would print an empty line.
        if self._progress.live.is_started:
            self._progress.stop()

    def _track_with_lines(self, items: Iterable[T], description: str, total: int | None) -> Iterator[T]:
        start_s = last_line_s = time.monotonic()
        eta = EtaEstimator(start_s)
        for item in items:
            yield item
            now_s = time.monotonic()
            eta.finish_item(now_s)
            if now_s - last_line_s >= self._heartbeat_s and eta.num_done != total:
                last_line_s = now_s
                remaining_s = eta.remaining_s(total, now_s)
                self._print_line(f"{description}: {format_progress(eta.num_done, total, now_s - start_s, remaining_s)}")
        seconds = time.monotonic() - start_s
        if seconds >= self._bar_delay_s:
            self._print_line(f"{description}: {eta.num_done} in {format_duration(seconds)}")


class PipeConsole(Console):
    """A console that raises `BrokenPipeError` when its reader has exited; rich would end the program."""

    def on_broken_pipe(self) -> None:
        """Raise the error."""
        raise BrokenPipeError


def make_console(*, stderr: bool = False) -> Console:
    """Return a console for stdout or stderr; without a terminal it writes no control codes and does not wrap."""
    console = PipeConsole(stderr=stderr, highlight=False)
    return console if console.is_terminal else PipeConsole(stderr=stderr, highlight=False, width=PLAIN_WIDTH_COLUMNS)


def print_text(console: Console, text: str) -> None:
    """Print a text as it is, without markup and without wrapping its lines."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def format_progress(num_done: int, total: int | None, seconds: float, remaining_s: float | None) -> str:
    """Describe the progress of a job, e.g. "30 of 120, 45 s left"."""
    if total is None or remaining_s is None:
        return f"{num_done} after {format_duration(seconds)}"
    return f"{num_done} of {total}, {format_duration(remaining_s)} left"


def format_duration(seconds: float) -> str:
    """Format a duration: "4.2 s", "3 min 05 s", "1 h 02 min"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def format_value(value: object) -> str:
    """Format a value for a table cell: four significant digits, yes or no, lists with commas."""
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
            return ", ".join(f"{key} {format_value(item)}" for key, item in value.items())
        case Iterable():
            return ", ".join(format_value(item) for item in value)
        case _:
            return str(value)
