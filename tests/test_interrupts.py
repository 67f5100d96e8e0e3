"""Interruptions: SIGTERM is one, and a block that must be whole is ended first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from child_process import start_process

from embodied_rm.interrupts import Terminated, defer_interrupts, raise_when_terminated


@pytest.fixture(autouse=True)
def restored_handlers() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def interrupt(number: signal.Signals = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


WAIT_WHILE_IMPORTED = """
class Waiting:
    def find_spec(self, name, path=None, target=None):
        if name == "embodied_rm.cli.main":
            wait()
sys.meta_path.insert(0, Waiting())
"""
WAIT_AT_EXIT = "import atexit; atexit.register(wait)"
PROGRAM = """
import sys, time
def wait():
    print("waiting", flush=True)
    time.sleep(60)
{preparation}
from embodied_rm.__main__ import run
sys.exit(run())
"""


def test_an_interruption_comes_after_the_block() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt), defer_interrupts():
        interrupt()
        steps.append("the rest of the block")
    assert steps
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_a_second_interruption_comes_at_once() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt), defer_interrupts():
        interrupt()
        steps.append(1)
        interrupt()
        steps.append(2)
    assert steps == [1]


def test_termination_is_an_interruption_and_is_deferred_too() -> None:
    raise_when_terminated()
    with pytest.raises(Terminated):
        interrupt(signal.SIGTERM)
    done = False
    with pytest.raises(Terminated), defer_interrupts():
        interrupt(signal.SIGTERM)
        done = True
    assert done


def test_an_error_of_the_block_is_not_replaced_by_the_interruption() -> None:
    with pytest.raises(ZeroDivisionError), defer_interrupts():
        interrupt()
        raise ZeroDivisionError


def test_in_another_thread_nothing_is_changed() -> None:
    handler, found = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        raise_when_terminated()
        with defer_interrupts():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [handler]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("preparation", [WAIT_WHILE_IMPORTED, WAIT_AT_EXIT])
def test_the_program_starts_and_ends_without_a_traceback(number: signal.Signals, preparation: str) -> None:
    words = [sys.executable, "-c", PROGRAM.format(preparation=preparation), "--version"]
    with start_process(words, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        while process.stdout.readline() != "waiting\n":
            assert process.poll() is None
        process.send_signal(number)
        assert process.stderr.read() == ""
    assert process.returncode == -number


def test_an_ignored_signal_stays_ignored() -> None:
    """`nohup` and scripts in the background ignore signals for their programs."""
    program = PROGRAM.format(preparation=WAIT_WHILE_IMPORTED)
    program = program.replace("time.sleep(60)", "import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    script = 'trap \'\' INT; "$0" -c "$1" --version'
    done = subprocess.run(["bash", "-c", script, sys.executable, program], capture_output=True, text=True, check=True)
    assert done.stdout and not done.stderr
