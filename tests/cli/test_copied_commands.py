"""Commands that are printed to be copied run nothing that their names or texts say, and tracebacks are escaped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from test_terminal_text import HOSTILE, OBEYED

from embodied_rm.data.open_dataset import open_annotations
from embodied_rm.errors import DataError
from embodied_rm.experiments import plan_instruction

RUNS = ("$(touch PWNED)", "`touch PWNED`", "a; touch PWNED", "' touch PWNED '", '"; touch PWNED; "', "a\ntouch PWNED")


def run_line(line: str, folder: Path) -> str:
    """Give a line to the shell, and return the words that a program gets."""
    script = f"printf '%s\\0' {line}"
    return subprocess.run(["sh", "-c", script], cwd=folder, capture_output=True, check=True).stdout.decode()


class Log:
    """A reporter that keeps the lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, text: str) -> None:
        self.lines.append(text)


@pytest.mark.parametrize("text", RUNS)
def test_instruction_of_a_plan(text: str, tmp_path: Path) -> None:
    log = Log()
    plan_instruction.suggest(text, log)
    assert run_line(log.lines[0].removeprefix("use it: "), tmp_path) == f"instruction={text}\0"
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize("text", RUNS)
def test_path_of_a_dataset(text: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error_info:
        open_annotations(Path(text), object())
    line = str(error_info.value).partition("`embodied-rm convert ")[2].rpartition("` writes")[0]
    assert run_line(line, tmp_path) == f"data={Path(text)}\0" and not (tmp_path / "PWNED").exists()


PROGRAM = """
import sys, threading
from embodied_rm import __main__ as program
from embodied_rm.cli import main

def fail(*_):
    raise RuntimeError({text!r})

def fail_in_thread(*_):
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    return 1

main.dispatch = {function}
sys.exit(program.run())
"""


@pytest.mark.parametrize("function", ["fail", "fail_in_thread"])
def test_traceback_of_a_bug(function: str) -> None:
    program = PROGRAM.format(text="".join(HOSTILE.values()), function=function)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 1 and "Traceback" in result.stderr and not OBEYED.search(result.stderr)
