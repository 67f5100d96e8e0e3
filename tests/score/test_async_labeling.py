"""Labels that are made beside something else: what is stored is learned from, and what is not is counted."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from sprites import episode

from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.score_table import ScoreTable
from embodied_rm.errors import UserError
from embodied_rm.models.reward_model import Capabilities, InputSpec
from embodied_rm.run_folder import NullReporter
from embodied_rm.score import Scorer
from embodied_rm.score.async_labeling import VIDEOS_DIR, AsyncLabeler, LabelingConfig
from embodied_rm.types import RewardOutput


class Waiting:
    """Says how many hundredths of a hundred frames have gone by, and judges nothing before it may."""

    input_spec = InputSpec()
    capabilities = Capabilities()

    def __init__(self) -> None:
        self.may = threading.Event()

    def reset(self, views, instructions, goal=None, reference=None) -> int:
        self.may.wait(30)
        return 0

    def step(self, memory: int, views) -> tuple[RewardOutput, int]:
        zero = np.zeros(1, np.float32)
        value = zero + (memory + 1) / 100
        valid, stage = np.ones(1, bool), np.zeros(1, np.int64)
        return RewardOutput(progress=value, valid=valid, subtask=stage, success=zero, uncertainty=zero), memory + 1


class Broken(Waiting):
    def step(self, memory: int, views) -> tuple[RewardOutput, int]:
        raise UserError("the judge fell ill")


def labels(folder: Path, model: Waiting | None = None, judge: str = "counter", **how: int) -> AsyncLabeler:
    model = model or Waiting()
    if "max_queue" not in how:
        model.may.set()
    return AsyncLabeler(Scorer(model=model), folder, LabelingConfig(**{"episodes_per_dataset": 3, **how}), judge)


def test_videos_and_what_was_said_of_them_lie_side_by_side(tmp_path: Path) -> None:
    videos = [episode(number, length=5 + number) for number in range(7)]
    with labels(tmp_path) as some:
        for video in videos[:5]:
            some.submit(video)
        some.finish(NullReporter())
        assert len(some) == 5
    with labels(tmp_path) as more:  # the run is gone on with
        for video in videos[5:]:
            more.submit(video)
        more.finish(NullReporter())
        assert len(more) == 7 and more.num_dropped == 0
    assert sorted(path.name for path in (tmp_path / VIDEOS_DIR).iterdir()) == ["00000", "00001", "00002"]
    source, told = open_dataset(tmp_path / VIDEOS_DIR), ScoreTable.read(tmp_path)
    for row, video in enumerate(videos):
        stored = told.attach_predictions(
            source.episode(row), source.meta[row].episode_index, source.meta[row].length, 1
        )
        assert stored.instruction == video.instruction
        assert np.abs(stored.views["top"].astype(int) - video.views["top"]).mean() < 8
        np.testing.assert_allclose(stored.predictions.progress, np.arange(len(video)) / 100, atol=1e-6)
        assert stored.predictions.valid.all()


def test_more_than_may_wait_are_dropped_and_counted(tmp_path: Path) -> None:
    judge = Waiting()
    with labels(tmp_path, judge, max_queue=2) as some:
        for number in range(6):
            some.submit(episode(number, length=5))
        assert some.num_dropped == 4
        judge.may.set()
        some.finish(NullReporter())
        assert len(some) == 2


def test_half_a_dataset_of_a_killed_run_is_no_dataset(tmp_path: Path) -> None:
    with labels(tmp_path) as some:
        for number in range(3):
            some.submit(episode(number, length=5))
        some.finish(NullReporter())
    left = tmp_path / VIDEOS_DIR / ".00001.partial-abcdef01"
    left.mkdir()
    with labels(tmp_path) as more:
        assert not left.exists() and len(more) == 3
        more.submit(episode(9, length=6))
        more.finish(NullReporter())
    assert [meta.length for meta in open_dataset(tmp_path / VIDEOS_DIR).meta] == [5, 5, 5, 6]


def test_a_judge_that_fails_is_told_to_whoever_makes_videos(tmp_path: Path) -> None:
    with labels(tmp_path, Broken()) as some, pytest.raises(UserError, match="fell ill"):
        some.submit(episode(0, length=5))
        some.finish(NullReporter())


def test_another_judge_does_not_go_on_with_it(tmp_path: Path) -> None:
    with labels(tmp_path):
        pass
    with pytest.raises(UserError, match="another judge labeled this"):
        labels(tmp_path, judge="somebody")
    with pytest.raises(UserError, match=r"labeling\.episodes_per_dataset must be >= 1, got 0"):
        LabelingConfig(episodes_per_dataset=0)
