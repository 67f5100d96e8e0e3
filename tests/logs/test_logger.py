"""The log of a run: rows as numbers, writers that fail, and the curves of a training that was killed."""

from __future__ import annotations

import resource
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from curves import drawn
from sprites import episodes

from embodied_rm.logs import flatten_metrics, open_logger
from embodied_rm.logs.event_file import EVENT_FILE_PREFIX, EventFileWriter
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.train import TRAIN_STATE_DIR, TrainConfig, train
from embodied_rm.train.augment import AugmentConfig

QUICK = TrainConfig(
    image_size=(32, 32),
    steps=6,
    batch_size=4,
    frames_per_episode=4,
    augment=AugmentConfig(view_dropout_prob=0.3),
    checkpoint_seconds=1e9,
)


class Noting(NullReporter):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def log(self, text: str) -> None:
        self.notes.append(text)


class KilledError(Exception):
    """The power fails."""


class Killing(NullReporter):
    """Ends the process when so many updates of six are done."""

    def __init__(self, after: int) -> None:
        self._percent = 100 * after // 6

    def track(self, items: Iterable, description: str, total: int | None = None) -> Iterator:
        for percent in items:
            yield percent
            if percent >= self._percent:
                raise KilledError


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_the_numbers_of_a_row_are_named_by_their_path():
    row = {"loss": {"total": 1, "hops": {"goal": np.float32(0.5)}}, "alarm": True, "why": "it hides", "none": None,
           "list": [1, 2]}  # fmt: skip
    assert flatten_metrics(row) == {"loss/total": 1.0, "loss/hops/goal": 0.5, "alarm": 1.0}


def test_a_folder_that_is_gone_is_told_of_once_and_ends_nothing(tmp_path):
    reporter, run = Noting(), RunFolder.open(tmp_path / "run")
    run.path.rmdir()
    with open_logger(run, reporter) as log:
        for step in range(3):
            log.write(step, {"loss": 1.0})
    assert len(reporter.notes) == 1 and reporter.notes[0].startswith("TensorBoard takes no more rows"), reporter.notes


def test_a_disk_that_is_full_is_told_of_once_and_leaves_the_rows_before(tmp_path):
    reporter, run = Noting(), RunFolder.open(tmp_path / "run")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
        with open_logger(run, reporter) as log:
            for step in range(200):
                log.write(step, {"loss": float(step)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(reporter.notes) == 1 and "File too large" in reporter.notes[0], reporter.notes
    steps = [step for step, _ in drawn(run.path)["loss"]]
    assert 20 < len(steps) < 200 and steps == list(range(len(steps)))


def test_only_the_first_process_writes(tmp_path):
    run = RunFolder.open(tmp_path / "run")
    with open_logger(run, NullReporter(), rank=1) as log:
        log.write(0, {"loss": 1.0})
    assert not list(run.path.iterdir())


def trained(run: RunFolder, config: TrainConfig, after: int = 6) -> None:
    """Train, from what is stored, until so many updates are done."""
    train(episodes(4), config, run, Killing(after) if after < 6 else NullReporter())


@pytest.mark.parametrize("stored", [False, True])
def test_the_curves_of_a_training_that_was_killed_are_those_of_one_that_was_not(tmp_path, stored):
    """It goes on from nothing, or from the second of five updates: what it wrote since then is written again."""
    config = replace(QUICK, checkpoint_seconds=1e-9 if stored else 1e9)
    trained(RunFolder.open(tmp_path / "straight"), config)
    run = RunFolder.open(tmp_path / "broken")
    with pytest.raises(KilledError):
        trained(run, config, after=2)
    if stored:
        shutil.copytree(run.path / TRAIN_STATE_DIR, tmp_path / "second")
    with pytest.raises(KilledError):
        trained(run, config, after=5)
    if stored:
        shutil.rmtree(run.path / TRAIN_STATE_DIR)
        shutil.copytree(tmp_path / "second", run.path / TRAIN_STATE_DIR)
    trained(run, config)
    straight, broken = drawn(tmp_path / "straight"), drawn(run.path)
    assert {"loss/total", "loss/hops/everywhere", "gradient", "learning_rate"} <= set(straight)
    assert len(list(run.path.glob(f"{EVENT_FILE_PREFIX}*"))) == 3 and straight.keys() == broken.keys()
    for tag, points in straight.items():
        assert [step for step, _ in broken[tag]] == list(range(1, 7)), tag
        assert points == broken[tag] or tag == "seconds", tag


def test_a_row_costs_less_than_a_millisecond(tmp_path):
    file, row = EventFileWriter(tmp_path), {f"loss/hops/term_{k}": k / 7 for k in range(16)}
    file.write(0, row)
    started = time.process_time()
    for step in range(1, 501):
        file.write(step, row)
    assert (time.process_time() - started) / 500 < 1e-3
