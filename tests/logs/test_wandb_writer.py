"""Offline runs of Weights & Biases: files on disk, and no network."""

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
from curves import read_scalars, read_wandb_records
from sprites import episodes

from embodied_rm.errors import UserError
from embodied_rm.logs import open_logger
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.training import TrainConfig, train

QUICK = TrainConfig(image_size=(32, 32), steps=3, batch_size=4, frames_per_episode=4, wandb_project="drawers")


class RecordingReporter(NullReporter):
    """Collects messages."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def log(self, text: str) -> None:
        self.messages.append(text)


@pytest.fixture(autouse=True)
def clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove all W&B settings."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "")  # so that monkeypatch undoes what start_wandb_run sets
    monkeypatch.delenv("WANDB_ERROR_REPORTING")
    yield
    with suppress(ConnectionError):  # a test may have killed the server
        wandb.teardown()


def wandb_servers() -> list[tuple[int, str]]:
    """Return process id and command line of the W&B processes that this process started."""
    listed = subprocess.run(
        ["ps", "-ww", "--ppid", str(os.getpid()), "-o", "pid=,args="], capture_output=True, text=True
    )
    lines = [line.split(maxsplit=1) for line in listed.stdout.splitlines() if "wandb-core" in line]
    return [(int(pid), line) for pid, line in lines]


def transaction_log(folder: Path) -> Path:
    """Return the transaction log of the single W&B run of a run folder, after its server has flushed it."""
    wandb.teardown()
    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    return path


def test_training_logs_every_row(tmp_path):
    run = RunFolder.open(tmp_path / "train" / "reward")
    run.write_json("config.json", {"command": "train", "config": {"steps": 3}})
    train(episodes(4), QUICK, run, NullReporter())
    records = read_wandb_records(transaction_log(run.path))
    (run_record,) = [record.run for record in records if record.HasField("run")]
    assert (run_record.project, run_record.run_group) == ("drawers", "train/reward")
    settings = {item.key: json.loads(item.value_json) for item in run_record.config.update}
    assert settings["config"] == {"steps": 3} and settings["command"] == "train"
    rows = [{"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.history.item}
            for record in records if record.HasField("history")]  # fmt: skip
    assert [row["_step"] for row in rows] == [1, 2, 3]
    for tag, points in read_scalars(run.path).items():
        assert [row[tag] for row in rows] == pytest.approx([value for _, value in points]), tag
    assert [record.exit.exit_code for record in records if record.HasField("exit")] == [0]


def test_offline_server_reports_no_errors_of_its_own(tmp_path):
    """Error reports would need a connection to W&B."""
    with open_logger(RunFolder.open(tmp_path / "run"), NullReporter(), "drawers"):
        (server,) = wandb_servers()
        assert "--no-observability" in server[1]


def test_killed_server_is_reported_once(tmp_path):
    reporter, run = RecordingReporter(), RunFolder.open(tmp_path / "run")
    with open_logger(run, reporter, "drawers") as log:
        log.write(1, {"loss": 1.0})
        os.kill(wandb_servers()[0][0], signal.SIGKILL)
        for step in range(2, 200):
            log.write(step, {"loss": 1.0})
    failures = [message for message in reporter.messages if "failed; the run continues" in message]
    assert len(failures) == 1 and failures[0].startswith("Weights & Biases"), reporter.messages
    assert [step for step, _ in read_scalars(run.path)["loss"]] == list(range(1, 200))


def test_failed_run_has_exit_code_1(tmp_path):
    run = RunFolder.open(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt), open_logger(run, NullReporter(), "drawers") as log:
        log.write(1, {"loss": 1.0})
        raise KeyboardInterrupt
    assert [r.exit.exit_code for r in read_wandb_records(transaction_log(run.path)) if r.HasField("exit")] == [1]


@pytest.mark.parametrize(("mode", "reason"), [("online", "No API key"), ("onlin", "mode")])
def test_failed_start_is_reported(tmp_path, monkeypatch, mode, reason):
    monkeypatch.setenv("WANDB_MODE", mode)
    reporter, run = RecordingReporter(), RunFolder.open(tmp_path / "run")
    with open_logger(run, reporter, "drawers") as log:
        log.write(1, {"loss": 1.0})
    assert len(reporter.messages) == 1 and reason in reporter.messages[0], reporter.messages
    assert read_scalars(run.path)["loss"] == [(1, 1.0)]


@pytest.mark.parametrize("project", ["", "a/b", "x" * 129])
def test_invalid_project_name_is_rejected(project):
    for config in (TrainConfig, RefineConfig):
        with pytest.raises(UserError, match="wandb_project must be a project name"):
            config(wandb_project=project)


@pytest.mark.parametrize("spec", [None, ModuleSpec("wandb", None)], ids=["not installed", "folder of runs"])
def test_missing_package_is_reported_first(monkeypatch, spec):
    monkeypatch.setattr("embodied_rm.logs.wandb_writer.find_spec", lambda name: spec)
    with pytest.raises(UserError, match=r"pip install 'embodied-rm\[wandb\]'"):
        TrainConfig(wandb_project="drawers")
    TrainConfig()
