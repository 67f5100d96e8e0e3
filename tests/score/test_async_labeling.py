"""`AsyncLabeler` stores videos with their scores, and counts dropped episodes."""

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


class BlockingJudge:
    """Scores the number of past frames in percent; blocks until it is released."""

    input_spec = InputSpec()
    capabilities = Capabilities()

    def __init__(self) -> None:
        self.released = threading.Event()

    def reset(self, views, instructions, goal=None, reference=None) -> tuple[int]:
        self.released.wait(30)
        return (0,)

    def step(self, state: tuple[int], views) -> tuple[RewardOutput, tuple[int]]:
        zero = np.zeros(1, np.float32)
        progress = zero + (state[0] + 1) / 100
        valid, subtask = np.ones(1, bool), np.zeros(1, np.int64)
        return RewardOutput(progress=progress, valid=valid, subtask=subtask, success=zero, uncertainty=zero), (
            state[0] + 1,
        )


class FailingJudge(BlockingJudge):
    def step(self, state: tuple[int], views) -> tuple[RewardOutput, tuple[int]]:
        raise UserError("the judge failed")


def make_labeler(
    folder: Path, model: BlockingJudge | None = None, judge_digest: str = "counter", **settings: int
) -> AsyncLabeler:
    model = model or BlockingJudge()
    if "max_queue" not in settings:
        model.released.set()
    config = LabelingConfig(**{"episodes_per_dataset": 3, **settings})
    return AsyncLabeler(Scorer(model=model), folder, config, judge_digest)


def test_videos_and_scores_are_stored_and_extended(tmp_path: Path) -> None:
    videos = [episode(number, length=5 + number) for number in range(7)]
    with make_labeler(tmp_path) as labeler:
        for video in videos[:5]:
            labeler.submit(video)
        labeler.finish(NullReporter())
        assert len(labeler) == 5
    with make_labeler(tmp_path) as resumed_labeler:
        for video in videos[5:]:
            resumed_labeler.submit(video)
        resumed_labeler.finish(NullReporter())
        assert len(resumed_labeler) == 7 and resumed_labeler.num_dropped == 0
    assert sorted(path.name for path in (tmp_path / VIDEOS_DIR).iterdir()) == ["00000", "00001", "00002"]
    source, score_table = open_dataset(tmp_path / VIDEOS_DIR), ScoreTable.read(tmp_path)
    for row, video in enumerate(videos):
        stored = score_table.attach_predictions(
            source.episode(row), source.meta[row].episode_index, source.meta[row].length, 1
        )
        assert stored.instruction == video.instruction
        assert np.abs(stored.views["top"].astype(int) - video.views["top"]).mean() < 8
        np.testing.assert_allclose(stored.predictions.progress, np.arange(len(video)) / 100, atol=1e-6)
        assert stored.predictions.valid.all()


def test_episodes_beyond_the_queue_are_dropped_and_counted(tmp_path: Path) -> None:
    judge = BlockingJudge()
    with make_labeler(tmp_path, judge, max_queue=2) as labeler:
        for number in range(6):
            labeler.submit(episode(number, length=5))
        assert labeler.num_dropped == 4
        judge.released.set()
        labeler.finish(NullReporter())
        assert len(labeler) == 2


def test_partial_dataset_of_a_killed_run_is_removed(tmp_path: Path) -> None:
    with make_labeler(tmp_path) as labeler:
        for number in range(3):
            labeler.submit(episode(number, length=5))
        labeler.finish(NullReporter())
    partial_dir = tmp_path / VIDEOS_DIR / ".00001.partial-abcdef01"
    partial_dir.mkdir()
    with make_labeler(tmp_path) as resumed_labeler:
        assert not partial_dir.exists() and len(resumed_labeler) == 3
        resumed_labeler.submit(episode(9, length=6))
        resumed_labeler.finish(NullReporter())
    assert [meta.length for meta in open_dataset(tmp_path / VIDEOS_DIR).meta] == [5, 5, 5, 6]


def test_error_of_the_judge_is_raised_by_finish(tmp_path: Path) -> None:
    with make_labeler(tmp_path, FailingJudge()) as labeler, pytest.raises(UserError, match="the judge failed"):
        labeler.submit(episode(0, length=5))
        labeler.finish(NullReporter())


def test_another_judge_or_an_invalid_setting_is_rejected(tmp_path: Path) -> None:
    with make_labeler(tmp_path):
        pass
    with pytest.raises(UserError, match="another judge labeled this"):
        make_labeler(tmp_path, judge_digest="other")
    with pytest.raises(UserError, match=r"labeling\.episodes_per_dataset must be >= 1, got 0"):
        LabelingConfig(episodes_per_dataset=0)
