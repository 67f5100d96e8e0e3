"""Runs of Weights & Biases, by W&B itself, offline: what lies on the disk, and that nothing leaves it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
import wandb
from curves import drawn, told
from sprites import episodes

from embodied_rm.errors import UserError
from embodied_rm.logs import open_logger
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.train import TrainConfig, train

QUICK = TrainConfig(image_size=(32, 32), steps=3, batch_size=4, frames_per_episode=4, wandb_project="drawers")


class Noting(NullReporter):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def log(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture(autouse=True)
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A user who has told W&B nothing."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "")  # monkeypatch takes back what start_run sets
    monkeypatch.delenv("WANDB_ERROR_REPORTING")
    yield
    with suppress(ConnectionError):  # of a server that a test has killed
        wandb.teardown()


def servers() -> list[tuple[int, str]]:
    """The processes of W&B that this one has started: number and command line."""
    listed = subprocess.run(
        ["ps", "-ww", "--ppid", str(os.getpid()), "-o", "pid=,args="], capture_output=True, text=True
    )
    lines = [line.split(maxsplit=1) for line in listed.stdout.splitlines() if "wandb-core" in line]
    return [(int(pid), line) for pid, line in lines]


def transactions(folder: Path) -> Path:
    """The one W&B run of a run folder, once its server has ended: until then the last records may not be there."""
    wandb.teardown()
    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    return path


def test_a_training_is_told_to_wandb_row_by_row_and_is_not_sent_anywhere(tmp_path):
    run = RunFolder.open(tmp_path / "train" / "reward")
    run.write_json("config.json", {"command": "train", "config": {"updates": 3}})
    train(episodes(4), QUICK, run, NullReporter())
    records = told(transactions(run.path))
    (begun,) = [record.run for record in records if record.HasField("run")]
    assert (begun.project, begun.run_group) == ("drawers", "train/reward")
    settings = {item.key: json.loads(item.value_json) for item in begun.config.update}
    assert settings["config"] == {"updates": 3} and settings["command"] == "train"
    rows = [{"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.history.item}
            for record in records if record.HasField("history")]  # fmt: skip
    assert [row["_step"] for row in rows] == [1, 2, 3]
    for tag, points in drawn(run.path).items():
        assert [row[tag] for row in rows] == pytest.approx([value for _, value in points]), tag
    assert [record.exit.exit_code for record in records if record.HasField("exit")] == [0]


def test_its_server_does_not_report_on_itself_while_it_is_offline(tmp_path):
    """It would ask for a host of W&B's."""
    with open_logger(RunFolder.open(tmp_path / "run"), NullReporter(), "drawers"):
        (server,) = servers()
        assert "--no-observability" in server[1]


def test_a_server_that_dies_is_told_of_once_and_ends_nothing(tmp_path):
    reporter, run = Noting(), RunFolder.open(tmp_path / "run")
    with open_logger(run, reporter, "drawers") as log:
        log.write(1, {"loss": 1.0})
        os.kill(servers()[0][0], signal.SIGKILL)
        for step in range(2, 200):
            log.write(step, {"loss": 1.0})
    spoken = [note for note in reporter.notes if "takes no more rows" in note]
    assert len(spoken) == 1 and spoken[0].startswith("Weights & Biases"), reporter.notes
    assert [step for step, _ in drawn(run.path)["loss"]] == list(range(1, 200))


def test_a_run_that_fails_is_told_to_have_failed(tmp_path):
    run = RunFolder.open(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt), open_logger(run, NullReporter(), "drawers") as log:
        log.write(1, {"loss": 1.0})
        raise KeyboardInterrupt
    assert [r.exit.exit_code for r in told(transactions(run.path)) if r.HasField("exit")] == [1]


@pytest.mark.parametrize(("mode", "why"), [("online", "No API key"), ("onlin", "mode")])
def test_where_it_cannot_start_the_run_goes_on_without_it(tmp_path, monkeypatch, mode, why):
    monkeypatch.setenv("WANDB_MODE", mode)
    reporter, run = Noting(), RunFolder.open(tmp_path / "run")
    with open_logger(run, reporter, "drawers") as log:
        log.write(1, {"loss": 1.0})
    assert len(reporter.notes) == 1 and why in reporter.notes[0], reporter.notes
    assert drawn(run.path)["loss"] == [(1, 1.0)]


@pytest.mark.parametrize("project", ["", "a/b", "x" * 129])
def test_a_name_that_no_project_can_have_is_refused(project):
    for config in (TrainConfig, RefineConfig):
        with pytest.raises(UserError, match="wandb is the name of a project"):
            config(wandb=project)


@pytest.mark.parametrize("found", [None, ModuleSpec("wandb", None)], ids=["nothing", "a folder of runs"])
def test_a_missing_package_is_named_before_anything_is_done(monkeypatch, found):
    monkeypatch.setattr("embodied_rm.logs.wandb_writer.find_spec", lambda name: found)
    with pytest.raises(UserError, match=r"pip install 'embodied-rm\[wandb\]'"):
        TrainConfig(wandb_project="drawers")
    TrainConfig()
