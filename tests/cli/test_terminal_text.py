"""Names and messages of datasets cannot control a terminal: they are printed with escapes, wherever they come from."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from embodied_rm.cli.console import ConsoleReporter
from embodied_rm.cli.main import main
from embodied_rm.cli.terminal_text import escape_controls

HOSTILE = {
    "title of the window": "\x1b]0;PWNED\x07",
    "cleared screen": "\x1b[2J\x1b[H",
    "clipboard": "\x1b]52;c;cm0gLXJm\x1b\\",
    "C1": "\x9b31m\x90q\x9c",
    "overwritten line": "sound\rerror",
    "further line": "a\nall episodes are sound",
    "line separator": "a\u2028b\u2029c\x85d",
    "reordered": "\u202etxt.exe\u202c \u2066a\u2069 \u200f\u061c",
    "NUL and DEL": "a\0b\x7f",
    "lone surrogate": "a\ud800b",
}
OBEYED = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c\ud800-\udfff]"
)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_every_output_of_the_reporter_escapes_controls(text: str) -> None:
    stream = io.StringIO()
    plain = Console(file=stream, width=200)
    with ConsoleReporter(plain, bar_delay_s=0.0, heartbeat_s=0.0) as reporter:
        reporter.log(f"left out: {text}")
        reporter.table("dataset", {text: text, "views": [text], "counts": {text: 1}})
        list(reporter.track(range(3), text))
    assert not OBEYED.search(stream.getvalue())
    assert escape_controls(text) in stream.getvalue()
    # log 1, table 4, job 2 or 3: no text adds a line of its own
    assert 7 <= len(stream.getvalue().splitlines()) <= 8


def test_other_text_is_printed_as_it_is() -> None:
    text = (
        "h\u00e4nge die Tasse auf, \u628a\u676f\u5b50\u6302\u4e0a, \u0627\u0631\u0641\u0639, \U0001f468\u200d\U0001f373"
    )
    assert escape_controls(text) == text


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_names_of_a_dataset_reach_no_terminal(text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    entry = {"name": text, "instruction": text, "success": text, "views": {text: "missing.mp4"}}
    (tmp_path / "episodes.json").write_text(json.dumps([entry, {**entry, "success": None}]))
    assert main(["inspect", f"data={tmp_path}", f"out={tmp_path / 'run'}"]) == 2
    out, err = capfd.readouterr()
    assert "error: " in err and not OBEYED.search(out + err.replace("\x1b[0m", ""))
