"""A small corpus on disk and who judges it; workers of other processes import this file."""

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
from embodied_rm.train import TrainConfig, make_net
from embodied_rm.types import RewardOutput

COUNT = 5
EVERY = 4
"""A `Picky` judge leaves every so manieth frame unscored."""


def write_corpus(folder: Path) -> Path:
    """A LeRobot dataset of `COUNT` episodes of different lengths, each with videos of its own, of two blocks.

    They are so long that what is wrong in their middle is not found when they are opened."""
    with DatasetWriter(folder, video_file_mb=0) as writer:
        for number in range(COUNT):
            writer.add(episode(number, length=50 + number))
    return folder


def save_net(folder: Path, seed: int = 0) -> Path:
    """A small model with random weights, as a checkpoint."""
    save_progress_net(folder, make_net(episodes(2), TrainConfig(image_size=(32, 32), seed=seed)).eval(), {})
    return folder


class Picky:
    """A judge of other people's: the net of a checkpoint, which has an answer to some moments only."""

    def __init__(self, folder: Path) -> None:
        self._net = load_progress_net(folder)
        self.input_spec: InputSpec = self._net.input_spec
        self.failures: Counter[str] = Counter()
        self._asked = 0

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(failures=self.failures)

    def reset(self, views, instructions, goal=None, reference=None):
        self._asked = 0
        return self._net.reset(views, instructions, goal)

    def step(self, memory, views):
        judged, memory = self._net.step(memory, views)
        self._asked += 1
        if self._asked % EVERY:
            return judged, memory
        self.failures["no answer"] += 1
        return RewardOutput(**{**vars(judged), "valid": np.zeros(1, bool)}), memory


def open_net(folder: Path) -> Scorer:
    return Scorer(model=load_progress_net(folder))


def open_picky(folder: Path) -> Scorer:
    return Scorer(model=Picky(folder))


def open_mistaken(folder: Path) -> Scorer:
    raise UserError(f"{folder}: is nowhere to be found")


def open_killed(folder: Path) -> Scorer:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def scored_by(opener, net: Path, data: LeRobotDataset, out: Path, **settings) -> CorpusScores:
    """The corpus scored with two episodes a shard and no images, unless it is said otherwise."""
    config = ScoreConfig(**{"shard_episodes": 2, "plots": False, "videos": False, **settings})
    run = RunFolder.open(out, resume=True)
    return score_corpus(partial(opener, net), data, config, run, NullReporter(), {"model": model_digest(net)})
