"""One process writes into a run folder; a second one is told which, and the lock of a dead one is free."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from child_process import start_process

from embodied_rm.errors import UserError
from embodied_rm.run_lock import LOCK_FILE, lock_folder

HOLD = """
import sys, time
from pathlib import Path
from embodied_rm.run_lock import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""
COUNT = """
import sys, time
from pathlib import Path
from embodied_rm.errors import UserError
from embodied_rm.run_lock import lock_folder
folder, counter = Path(sys.argv[1]), Path(sys.argv[2])
done = 0
while done < 30:
    try:
        with lock_folder(folder):
            value = int(counter.read_text())
            counter.write_text(str(value + 1))
            done += 1
    except UserError:
        time.sleep(0.001)
"""


@contextmanager
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a process that holds the lock of a folder."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()


def test_the_second_process_hears_who_holds_it_and_a_killed_owner_holds_nothing(tmp_path: Path) -> None:
    with holder(tmp_path) as owner:
        expected = rf"{tmp_path} is in use by process {owner.pid} on {socket.gethostname()}, since 20.*another out="
        with pytest.raises(UserError, match=expected), lock_folder(tmp_path):
            pass
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        assert (tmp_path / LOCK_FILE).exists(), "it could not clean up"
        with lock_folder(tmp_path):
            assert json.loads((tmp_path / LOCK_FILE).read_text())["pid"] == os.getpid()
    assert not list(tmp_path.iterdir())


def test_the_lock_excludes_within_a_process_and_is_free_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), lock_folder(tmp_path):
        with pytest.raises(UserError, match=f"process {os.getpid()} on "), lock_folder(tmp_path):
            pass
        raise ZeroDivisionError
    with lock_folder(tmp_path):
        pass


def test_a_lock_of_another_machine_is_not_taken(tmp_path: Path) -> None:
    owner = {"host": "another-machine", "pid": 7, "since": "2026-11-28 12:00:00"}
    (tmp_path / LOCK_FILE).write_text(json.dumps(owner))
    with (
        pytest.raises(
            UserError, match=rf"process 7 on another-machine.*if that process has ended, delete .*{LOCK_FILE}"
        ),
        lock_folder(tmp_path),
    ):
        pass
    (tmp_path / LOCK_FILE).unlink()
    with lock_folder(tmp_path):
        pass


def test_a_file_that_is_no_lock_is_taken_over_and_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).write_text("{half")
    with lock_folder(tmp_path):
        pass
    target = tmp_path / "target"
    target.write_text("precious")
    (tmp_path / LOCK_FILE).symlink_to(target)
    with pytest.raises(OSError), lock_folder(tmp_path):
        pass
    assert target.read_text() == "precious"


def test_of_many_processes_one_holds_it_at_a_time(tmp_path: Path) -> None:
    folder, counter = tmp_path / "run", tmp_path / "counter"
    folder.mkdir()
    counter.write_text("0")
    with ExitStack() as stack:
        command = [sys.executable, "-c", COUNT, str(folder), str(counter)]
        processes = [stack.enter_context(start_process(command)) for _ in range(4)]
        deadline = time.monotonic() + 200
        assert [process.wait(timeout=deadline - time.monotonic()) for process in processes] == [0] * 4
    assert counter.read_text() == "120"


@pytest.mark.parametrize("kind", ["queue", "hard link"])
def test_what_a_dataset_brings_as_a_lock_is_not_written(tmp_path: Path, kind: str) -> None:
    notes = tmp_path / "notes"
    notes.write_text("mine")
    (tmp_path / "data").mkdir()
    if kind == "queue":
        os.mkfifo(tmp_path / "data" / LOCK_FILE)
    else:
        os.link(notes, tmp_path / "data" / LOCK_FILE)
    with pytest.raises(UserError, match="is no file of a lock"), lock_folder(tmp_path / "data"):
        pass
    assert notes.read_text() == "mine"


def test_an_owner_that_is_nested_too_deeply_is_none(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).write_text("[" * 4096)
    with lock_folder(tmp_path):
        pass
