"""The console reporter: silent for short jobs, aligned, and without control characters off a terminal."""

import io
import re
import time
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress

from embodied_rm.cli.console import (
    ConsoleReporter,
    EtaEstimator,
    TimeLeftColumn,
    format_duration,
    format_progress,
    format_value,
)


def reporter(stream: io.StringIO, *, terminal: bool, **options: float) -> ConsoleReporter:
    return ConsoleReporter(Console(file=stream, force_terminal=terminal, width=80), **options)


def slowly(count: int, seconds: float):
    for item in range(count):
        time.sleep(seconds)
        yield item


@pytest.mark.parametrize("terminal", [True, False])
def test_short_jobs_print_nothing(terminal: bool) -> None:
    stream = io.StringIO()
    with reporter(stream, terminal=terminal) as console:
        assert list(console.track(range(100), "quick")) == list(range(100))
    assert stream.getvalue() == ""


def test_long_jobs_draw_a_bar_on_a_terminal() -> None:
    stream = io.StringIO()
    with reporter(stream, terminal=True, bar_delay_s=0.05) as console:
        list(console.track(slowly(4, 0.1), "collect", total=4))
    assert "collect" in stream.getvalue() and "/4" in stream.getvalue()
    assert "collect: 4 in 0." in stream.getvalue()


def test_long_jobs_print_few_plain_lines_without_a_terminal() -> None:
    stream = io.StringIO()
    began = time.perf_counter()
    with reporter(stream, terminal=False, bar_delay_s=0.0, heartbeat_s=0.1) as console:
        list(console.track(slowly(30, 0.01), "collect", total=30))
    lines = stream.getvalue().splitlines()
    assert 2 <= len(lines) <= 2 + (time.perf_counter() - began) / 0.1, "at most one per heartbeat"
    assert re.fullmatch(r"collect: \d+ of 30, [\d.]+ s left", lines[0])
    assert re.fullmatch(r"collect: 30 in [\d.]+ s", lines[-1])


def test_output_without_a_terminal_has_no_control_characters() -> None:
    stream = io.StringIO()
    with reporter(stream, terminal=False, bar_delay_s=0.0, heartbeat_s=0.0) as console:
        console.table("model", {"parameters": 1_234_567, "a very long value": "x" * 300})
        console.log("[bold]not markup[/bold] " + "y" * 200)
        list(console.track(range(3), "steps"))
    text = stream.getvalue()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    assert "x" * 300 in text and "[bold]not markup[/bold]" in text


def test_jobs_can_be_nested() -> None:
    stream = io.StringIO()
    with reporter(stream, terminal=True, bar_delay_s=0.01) as console:
        seen = [(a, b) for a in console.track(range(2), "outer") for b in console.track(slowly(2, 0.02), "inner")]
    assert seen == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_failing_job_removes_its_bar() -> None:
    stream = io.StringIO()
    with pytest.raises(KeyError), reporter(stream, terminal=True, bar_delay_s=0.01) as console:
        for item in console.track(slowly(3, 0.05), "doomed"):
            if item == 1:
                raise KeyError(item)
    assert "\x1b[?25h" in stream.getvalue(), "the cursor must be visible again"


@pytest.mark.parametrize("terminal", [True, False])
def test_table_values_are_aligned(terminal: bool) -> None:
    stream = io.StringIO()
    with reporter(stream, terminal=terminal) as console:
        console.table("run", {"a": "VALUE", "a longer key": "VALUE"})
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", stream.getvalue())
    assert len({line.index("VALUE") for line in text.splitlines() if "VALUE" in line}) == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "yes"), (None, "-"), (0.123456, "0.1235"), (12345, "12,345"), (Path("a/b"), "a/b"), ((1, "x"), "1, x")],
)
def test_values_are_formatted(value: object, text: str) -> None:
    assert format_value(value) == text


def test_durations_and_progress_are_formatted() -> None:
    assert format_duration(4.21) == "4.2 s"
    assert format_duration(185) == "3 min 05 s"
    assert format_duration(3720) == "1 h 02 min"
    assert format_progress(30, 120, 15.0, 45.0) == "30 of 120, 45.0 s left"
    assert format_progress(7, None, 1.0, None) == format_progress(7, 9, 1.0, None) == "7 after 1.0 s"


def test_the_remaining_time_ignores_cached_items() -> None:
    """Eight of twelve cells are cached; the time of the others is unknown until one of them is done."""
    eta, now = EtaEstimator(0.0), 0.0
    for _ in range(8):
        eta.finish_item(now := now + 0.01)
    assert eta.remaining_s(12, now) == pytest.approx(0.04)
    assert eta.remaining_s(12, now + 60) is None
    eta.finish_item(now := now + 300)
    assert eta.remaining_s(12, now) == pytest.approx(900)
    eta.finish_item(now := now + 200)
    assert eta.remaining_s(12, now) == pytest.approx(500)
    assert eta.remaining_s(None, now) is None and EtaEstimator(0.0).remaining_s(5, 3.0) is None


def test_the_remaining_time_of_items_that_end_together() -> None:
    """A training of 120 s was resumed at 20 %, and each step takes 9.6 s: 8 of 100 percents."""
    eta, now = EtaEstimator(0.0), 0.0
    for _ in range(20):
        eta.finish_item(now)
    for num_steps in range(1, 11):
        now += 9.6
        for _ in range(8):
            eta.finish_item(now)
        assert eta.remaining_s(100, now) == pytest.approx(96 - 9.6 * num_steps)


def test_a_bar_shows_the_remaining_time() -> None:
    column, eta = TimeLeftColumn(), EtaEstimator(time.monotonic() - 30)
    eta.finish_item(time.monotonic())
    progress = Progress(column)
    progress.add_task("", total=4, eta=eta)
    assert str(column.render(progress.tasks[0])) == "1 min 30 s left"
