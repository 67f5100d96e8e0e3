"""A small corpus on disk and its judges. Worker processes import this module."""

from __future__ import annotations

import os
import signal
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
from sprites import episode, episodes

from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.errors import UserError
from embodied_rm.models.checkpoint import load_progress_net, model_digest, save_progress_net
from embodied_rm.models.reward_model import Capabilities, InputSpec
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.score import CorpusScores, ScoreConfig, Scorer, score_corpus
from embodied_rm.training import TrainConfig, make_net
from embodied_rm.types import RewardOutput

NUM_EPISODES = 5
UNSCORED_STRIDE = 4
"""`FlakyJudge` leaves every fourth frame unscored."""


def write_corpus(folder: Path) -> Path:
    """Write a LeRobot dataset of `NUM_EPISODES` episodes of different lengths, each with its own videos of two blocks.

    The videos are so long that errors in their middle are not detected when the dataset is opened.
    """
    with DatasetWriter(folder, video_file_mb=0) as writer:
        for number in range(NUM_EPISODES):
            writer.add(episode(number, length=50 + number))
    return folder


def save_net(folder: Path, seed: int = 0) -> Path:
    """Write a small model with random weights as a checkpoint."""
    save_progress_net(folder, make_net(episodes(2), TrainConfig(image_size=(32, 32), seed=seed)).eval(), {})
    return folder


class FlakyJudge:
    """A judge that leaves some frames unscored: the net of a checkpoint without some of its predictions."""

    def __init__(self, folder: Path) -> None:
        self._net = load_progress_net(folder)
        self.input_spec: InputSpec = self._net.input_spec
        self.failures: Counter[str] = Counter()
        self._num_steps = 0

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(failures=self.failures)

    def reset(self, views, instructions, goal=None, reference=None):
        self._num_steps = 0
        return self._net.reset(views, instructions, goal)

    def step(self, state, views):
        output, state = self._net.step(state, views)
        self._num_steps += 1
        if self._num_steps % UNSCORED_STRIDE:
            return output, state
        self.failures["no answer"] += 1
        return RewardOutput(**{**vars(output), "valid": np.zeros(1, bool)}), state


def open_net(folder: Path) -> Scorer:
    return Scorer(model=load_progress_net(folder))


def open_flaky(folder: Path) -> Scorer:
    return Scorer(model=FlakyJudge(folder))


def raise_user_error(folder: Path) -> Scorer:
    raise UserError(f"{folder}: not found by the test")


def kill_worker(folder: Path) -> Scorer:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def run_score(scorer_factory, net: Path, data: LeRobotDataset, out: Path, **settings) -> CorpusScores:
    """Score the corpus, by default with two episodes per shard and without images."""
    config = ScoreConfig(**{"shard_episodes": 2, "plots": False, "videos": False, **settings})
    run = RunFolder.open(out, resume=True)
    return score_corpus(partial(scorer_factory, net), data, config, run, NullReporter(), {"model": model_digest(net)})
