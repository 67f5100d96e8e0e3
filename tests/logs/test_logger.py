"""Metrics logger: flattened rows, failing writers, and curves of interrupted training."""

from __future__ import annotations

import resource
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from curves import read_scalars
from killing_reporter import KilledError, KillingReporter
from sprites import episodes

from embodied_rm.logs import flatten_metrics, open_logger
from embodied_rm.logs.event_file import EVENT_FILE_PREFIX, EventFileWriter
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.training import TRAIN_STATE_DIR, TrainConfig, train
from embodied_rm.training.augment import AugmentConfig

QUICK = TrainConfig(
    image_size=(32, 32),
    steps=6,
    batch_size=4,
    frames_per_episode=4,
    augment=AugmentConfig(view_dropout_prob=0.3),
    checkpoint_seconds=1e9,
)


class RecordingReporter(NullReporter):
    """Collects messages."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def log(self, text: str) -> None:
        self.messages.append(text)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_nested_metrics_are_flattened():
    losses = {"total": 1, "hops": {"from_goal": np.float32(0.5)}}
    row = {"loss": losses, "alarm": True, "reason": "text", "none": None, "list": [1, 2]}
    assert flatten_metrics(row) == {"loss/total": 1.0, "loss/hops/from_goal": 0.5, "alarm": 1.0}


def test_missing_folder_is_reported_once(tmp_path):
    reporter, run = RecordingReporter(), RunFolder.open(tmp_path / "run")
    run.path.rmdir()
    with open_logger(run, reporter) as log:
        for step in range(3):
            log.write(step, {"loss": 1.0})
    assert len(reporter.messages) == 1 and reporter.messages[0].startswith("TensorBoard failed"), reporter.messages


def test_full_disk_is_reported_once_and_keeps_earlier_rows(tmp_path):
    reporter, run = RecordingReporter(), RunFolder.open(tmp_path / "run")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit[1]))
        with open_logger(run, reporter) as log:
            for step in range(200):
                log.write(step, {"loss": float(step)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert len(reporter.messages) == 1 and "File too large" in reporter.messages[0], reporter.messages
    steps = [step for step, _ in read_scalars(run.path)["loss"]]
    assert 20 < len(steps) < 200 and steps == list(range(len(steps)))


def test_only_rank_0_writes(tmp_path):
    run = RunFolder.open(tmp_path / "run")
    with open_logger(run, NullReporter(), rank=1) as log:
        log.write(0, {"loss": 1.0})
    assert not list(run.path.iterdir())


def train_until(run: RunFolder, config: TrainConfig, num_steps: int = 6) -> None:
    """Train from the saved state up to a number of steps."""
    train(episodes(4), config, run, KillingReporter(100 * num_steps // 6) if num_steps < 6 else NullReporter())


@pytest.mark.parametrize("saved", [False, True])
def test_interrupted_training_has_the_curves_of_an_uninterrupted_one(tmp_path, saved):
    """Training restarts, or resumes from step 2 of 5; later rows are written again."""
    config = replace(QUICK, checkpoint_seconds=1e-9 if saved else 1e9)
    train_until(RunFolder.open(tmp_path / "uninterrupted"), config)
    run = RunFolder.open(tmp_path / "interrupted")
    with pytest.raises(KilledError):
        train_until(run, config, num_steps=2)
    if saved:
        shutil.copytree(run.path / TRAIN_STATE_DIR, tmp_path / "second")
    with pytest.raises(KilledError):
        train_until(run, config, num_steps=5)
    if saved:
        shutil.rmtree(run.path / TRAIN_STATE_DIR)
        shutil.copytree(tmp_path / "second", run.path / TRAIN_STATE_DIR)
    train_until(run, config)
    expected, actual = read_scalars(tmp_path / "uninterrupted"), read_scalars(run.path)
    assert {"loss/total", "loss/hops/all_pairs", "grad_norm", "learning_rate"} <= set(expected)
    assert len(list(run.path.glob(f"{EVENT_FILE_PREFIX}*"))) == 3 and expected.keys() == actual.keys()
    for tag, points in expected.items():
        assert [step for step, _ in actual[tag]] == list(range(1, 7)), tag
        assert points == actual[tag] or tag == "seconds", tag


def test_row_costs_less_than_a_millisecond(tmp_path):
    writer, row = EventFileWriter(tmp_path), {f"loss/hops/term_{k}": k / 7 for k in range(16)}
    writer.write(0, row)
    start = time.process_time()
    for step in range(1, 501):
        writer.write(step, row)
    assert (time.process_time() - start) / 500 < 1e-3
