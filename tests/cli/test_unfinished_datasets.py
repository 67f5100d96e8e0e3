"""What a killed session leaves of a dataset is replaced by the next one; a dataset of somebody else never is."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from embodied_rm.cli.main import main
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.types import Episode

KILLED = """
import os, signal, sys
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.cli.main import main
def kill(writer, *_):
    os.kill(os.getpid(), signal.SIGKILL)
setattr(DatasetWriter, sys.argv[1], kill)
main(sys.argv[2:])
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with DatasetWriter(tmp_path / "data") as writer:
        frames = np.zeros((6, 32, 32, 3), np.uint8)
        writer.add(Episode(name="trial", views={"front": frames}, instruction="lift it", fps=10.0))
    return tmp_path / "data"


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_conversion_that_was_killed_is_repeated_and_leaves_nothing_behind(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["convert", f"data={data}", f"out={out}"]
    killed = subprocess.run([sys.executable, "-c", KILLED, "close", *words], check=False)
    assert killed.returncode == -signal.SIGKILL and list(out.glob(".dataset.partial-*"))
    assert main([*words, "resume=true"]) == 0
    assert list_names(out) == ["config.json", "dataset", "issues.json", "metrics.json"]


def test_a_conversion_that_was_killed_before_its_metrics_is_repeated(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["convert", f"data={data}", f"out={out}"]
    assert main(words) == 0
    (out / "metrics.json").unlink()
    (out / "dataset/mark").touch()
    assert main([*words, "resume=true"]) == 0
    assert len(open_dataset(out / "dataset")) == 1 and not (out / "dataset/mark").exists()


def test_no_command_replaces_a_dataset_that_was_there_before_it(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "project"
    out.mkdir()
    data.rename(out / "dataset")
    for words in (["convert", f"data={out}"], ["collect", "tasks=[lift_cube]"]):
        for resume in ("false", "true", "true"):
            assert main([*words, f"out={out}", f"resume={resume}"]) == 2
            assert "dataset: already exists" in capsys.readouterr().err
    assert len(open_dataset(out / "dataset")) == 1 and list_names(out) == ["dataset"]


@pytest.mark.parametrize("content", ['{"command": "conv', "", "[]", "{}", "\0" * 200, "[" * 100_000])
def test_a_torn_config_of_a_run_is_named(
    data: Path, tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / "config.json").write_text(content)
    assert main(["convert", f"data={data}", f"out={out}", "resume=true"]) == 2
    assert f"{out}" in capsys.readouterr().err
    assert (out / "config.json").read_text() == content


@pytest.mark.usefixtures("restore_task_registry")
@pytest.mark.parametrize("place", ["import", "construction"])
def test_a_task_that_exits_is_an_error(tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = "raise SystemExit(0)"
    if place == "construction":
        text = (
            "from embodied_sim.registry import register\nfrom embodied_sim.tasks.lift_cube import LiftCube\n"
            "@register\nclass Leaving(LiftCube):\n    name = 'leaving'\n"
            "    def success(self, *args):\n        raise SystemExit(0)\n"
        )
    (tmp_path / "task.py").write_text(text)
    words = ["play", f"task={tmp_path / 'task.py'}", f"out={tmp_path / 'run'}"]
    assert main(words) == 2
    assert "SystemExit" in capsys.readouterr().err
    assert set(list_names(tmp_path)) - {"__pycache__"} == {"task.py"}
