"""`annotate` prints where the page is, ends with Ctrl-C and says what was saved; what it cannot write it refuses."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import corruptions
import pytest
import tiny_vlm
from lerobot_v21 import write_v21_dataset

from embodied_rm.cli.commands.annotate import AnnotateCommand, make_proposer
from embodied_rm.cli.main import main
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.errors import UserError
from embodied_rm.models.judges.judge_config import JudgeConfig
from embodied_rm.types import Subtask

ROOT = Path(__file__).parents[2]
STEPS = [{"name": "reach", "start": 0, "end": 5}, {"name": "lift", "start": 5, "end": 12}]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    with DatasetWriter(tmp_path / "run" / "dataset") as writer:
        for i in range(3):
            writer.add(corruptions.make_episode(i))
    return tmp_path / "run"


def hear_ctrl_c() -> None:
    """As in a terminal: whatever runs in the background of a shell begins deaf to it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_it_serves_until_ctrl_c_and_tells_what_was_saved(dataset: Path) -> None:
    command = [sys.executable, "-m", "embodied_rm", "annotate", f"data={dataset}", "subtasks=[reach, lift]"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "80"},
        preexec_fn=hear_ctrl_c,
    ) as running:
        assert running.stdout is not None and running.stderr is not None
        told = ""
        while (found := re.search(r"open (http://127\.0\.0\.1:\d+/\S+/) in a browser", told)) is None:
            told += running.stdout.readline()
            assert running.poll() is None, running.stderr.read()
        url = f"{found[1]}episodes/1"
        proposed = json.load(urllib.request.urlopen(f"{url}/proposal"))["subtasks"]
        assert [step["name"] for step in proposed] == ["reach", "lift"]
        version = urllib.request.urlopen(url).headers["ETag"]
        body = json.dumps({"subtasks": STEPS, "success": False}).encode()
        headers = {"Content-Type": "application/json", "If-Match": version}
        urllib.request.urlopen(urllib.request.Request(url, body, headers, method="PUT"))
        running.send_signal(signal.SIGINT)
        rest = running.stdout.read()
        assert running.wait(20) == 0 and running.stderr.read() == ""
    name = open_dataset(dataset / "dataset").meta[1].name
    assert re.search(rf"saved\n +{name} +2 subtasks, failure\n", rest)
    meta = open_dataset(dataset / "dataset").meta[1]
    assert meta.subtasks == tuple(Subtask(**step) for step in STEPS) and meta.success is False


def test_what_it_cannot_write_it_refuses_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_v21_dataset(tmp_path / "old", [corruptions.make_episode(0)])
    assert main(["annotate", f"data={root}"]) == 2
    error = capsys.readouterr().err
    assert f"so it cannot be annotated; `embodied-rm convert data={root}` writes a dataset that can" in error
    assert error.count("\n") == 1


def test_a_port_that_is_taken_is_told(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["annotate", f"data={dataset}", "port=99999"]) == 2
    assert "port 99999 of 127.0.0.1 cannot be used" in capsys.readouterr().err


def test_a_judge_proposes_the_steps_that_are_named(dataset: Path, tmp_path: Path) -> None:
    judge = JudgeConfig(
        type="question", folder=tiny_vlm.save_model(tmp_path / "judge", answer="<progress>70%</progress>")
    )
    config = AnnotateCommand(data=dataset, subtasks=("reach", "lift", "put"), judge=judge)
    video = next(iter(open_dataset(dataset / "dataset")))
    steps = make_proposer(config)(video)
    assert [step.name for step in steps] == ["reach", "lift", "put"]
    assert [step.start for step in steps[:2]] == [0, 1], "70 % at once: the second of three steps is done with"
    with pytest.raises(UserError, match="name them, subtasks="):
        make_proposer(AnnotateCommand(data=dataset, judge=judge))
