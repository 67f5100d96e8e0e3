"""What the operating system refuses is one sentence, and leaves no file that is neither whole nor marked."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from forked_program import ForkedProgram

import embodied_rm as erm
from embodied_rm.cli.main import main
from embodied_rm.cli.os_errors import describe_refusal
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.run_lock import LOCK_FILE, lock_folder

RECORD = ("collect", "tasks=[lift_cube]", "num_successes=3", "num_failures=0", "env.num_envs=3", "env.image_size=32")
TRAIN = ("image_size=[32,32]", "batch_size=4", "frames_per_episode=4", "steps=40", "checkpoint_seconds=1e9")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "run"
    assert main([*RECORD, f"out={folder}"]) == 0
    return folder


@pytest.mark.parametrize(
    ("out", "reason"),
    [
        ("{file}", "it exists already, and is no folder"),
        ("{file}/below", "a part of the path is a file"),
        ("/sys/run", "permitted|permission|read-only"),
        ("{folder}/" + "x" * 300, "the name is too long"),
    ],
)
def test_a_folder_that_cannot_be_made_is_named(
    out: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    path = out.format(file=tmp_path / "file", folder=tmp_path)
    assert main([*RECORD, f"out={path}"]) == 5
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert re.search(reason, message) and path[:200] in message and "Traceback" not in message
    assert "resume" not in message, "nothing was begun"


@pytest.mark.parametrize("out", [".", "made", "new"])
def test_a_mistake_leaves_the_folders_of_the_user(
    out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The system refuses to remove a working directory or a mount point, which hid the mistake."""
    (tmp_path / "work" / "made").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work" / "made" if out == "." else tmp_path / "work")
    assert main(["score", f"data={tmp_path}", "instruction=lift", f"out={out}"]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["made"]
    assert list((tmp_path / "work" / "made").iterdir()) == []


def unmarked_files(folder: Path) -> list[Path]:
    """Return the files whose name does not say that they are incomplete."""
    return [path for path in folder.rglob("*") if path.is_file() and ".partial" not in str(path.relative_to(folder))]


@pytest.mark.parametrize("num_bytes", [1000, 3000, 8000])
def test_recording_without_room_leaves_no_half_dataset(num_bytes: int, tmp_path: Path) -> None:
    program = ForkedProgram([*RECORD, f"out={tmp_path}/run"], tmp_path / "printed", max_file_bytes=num_bytes)
    assert program.wait() == 5 and "Traceback" not in program.errors, program.errors
    assert "larger than is allowed" in program.errors
    left = unmarked_files(tmp_path / "run")
    assert {path.name for path in left} <= {"config.json"}, left
    assert not left or "with resume=true, it begins anew" in program.errors
    assert main([*RECORD, f"out={tmp_path}/run", "resume=true"]) == 0
    assert len(open_dataset(tmp_path / "run")) == 3


@pytest.mark.parametrize("num_bytes", [2000, 12_000])
def test_scores_without_room_go_on_after_it(num_bytes: int, recorded: Path, tmp_path: Path) -> None:
    words = ["score", f"data={recorded}", f"out={tmp_path}/scores", "resume=true"]
    program = ForkedProgram(words, tmp_path / "printed", max_file_bytes=num_bytes)
    assert program.wait() == 5 and "Traceback" not in program.errors, program.errors
    for video in (tmp_path / "scores").glob("episodes/*.mp4"):
        assert len(open_dataset(video).episode(0)) > 0, "a video that has its name is whole"
    assert main(words) == 0
    assert len(list((tmp_path / "scores").glob("episodes/*.mp4"))) == 3
    assert not list((tmp_path / "scores").rglob("*.partial"))


@pytest.fixture(scope="module")
def whole_weights(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert main(["train", f"data={recorded}", *TRAIN, f"out={folder}"]) == 0
    return load_progress_net(folder / "checkpoint").state_dict()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_training_that_is_asked_to_end_saves_and_goes_on(
    number: signal.Signals, code: int, recorded: Path, whole_weights: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    words = ["train", f"data={recorded}", *TRAIN, f"out={tmp_path}/run"]
    program = ForkedProgram(words, tmp_path / "printed")
    event_file = wait_for(lambda: next((tmp_path / "run").glob("events*"), None))
    size = event_file.stat().st_size
    wait_for(lambda: event_file if event_file.stat().st_size > size + 2000 else None)
    program.send_signal(number)
    assert program.wait() == code, program.errors
    errors = program.errors
    assert "to resume, repeat the command line with resume=true" in errors and "Traceback" not in errors
    assert (tmp_path / "run" / "unfinished" / "manifest.json").exists(), "saved, though no save was due"
    assert main([*words, "resume=true"]) == 0
    resumed = load_progress_net(tmp_path / "run" / "checkpoint").state_dict()
    assert all(torch.equal(resumed[name], whole_weights[name]) for name in resumed)


def wait_for(find: Callable[[], Path | None], timeout_s: float = 200) -> Path:
    end = time.monotonic() + timeout_s
    while (found := find()) is None:
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def test_an_unfinished_run_that_cannot_be_continued_begins_anew_and_says_so(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text((recorded / "config.json").read_text())
    assert main([*RECORD, f"out={folder}"]) == 2
    assert "cannot be continued: pass resume=true to begin anew, or another out=" in capsys.readouterr().err
    assert main([*RECORD, f"out={folder}", "resume=true"]) == 0
    assert "embodied-rm collect cannot continue a run: it begins anew" in capsys.readouterr().out


def test_numbers_of_libraries_are_read_and_other_errors_are_bugs() -> None:
    assert describe_refusal(OSError("IO error: No space left on device (os error 28)"), Path("runs/x")) == (
        "runs/x: there is no space left"
    )
    assert describe_refusal(RuntimeError("[Errno 28] Error writing bytes to file"), None) == "there is no space left"
    assert describe_refusal(FileNotFoundError(2, "No such file", "x"), Path("runs/x")) is None
    assert describe_refusal(RuntimeError("shape mismatch"), Path("runs/x")) is None


def test_the_second_process_on_a_folder_is_refused(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the command line and from Python; the run of the first one is left alone."""
    folder = tmp_path / "run"
    folder.mkdir()
    with lock_folder(folder):
        for words in ([*RECORD], ["train", f"data={recorded}", *TRAIN], ["score", f"data={recorded}"]):
            assert main([*words, f"out={folder}", "resume=true"]) == 2
            assert f"the run folder {folder} is in use by process {os.getpid()} on " in capsys.readouterr().err
        with pytest.raises(erm.UserError, match="is in use by process"):
            erm.train(erm.open_dataset(recorded), folder=folder, steps=1)
        assert [path.name for path in folder.iterdir()] == [LOCK_FILE]
