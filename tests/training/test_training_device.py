"""Training on a device: the CPU, and a GPU where there is one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from killing_reporter import KilledError, KillingReporter
from sprites import episodes

import embodied_rm as erm
from embodied_rm.errors import UserError
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.scoring import score_episodes
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.training import HeldOut, TrainConfig, train
from embodied_rm.training.augment import AugmentConfig
from embodied_rm.training.fitting import Execution

DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
AUGMENT = AugmentConfig(rotation=0.1, color_warp_std=0.1, goal_image_spoof_prob=0.5, half_cover_prob=0.3)
QUICK = TrainConfig(
    image_size=(32, 32), steps=8, batch_size=4, frames_per_episode=4, augment=AUGMENT, checkpoint_seconds=1e-9
)
HELD_OUT = HeldOut(episodes=episodes(4, start=100))


def train_on(device: str, folder: Path) -> ProgressNet:
    run, execution = RunFolder.open(folder), Execution(device=device)
    return train(episodes(8), QUICK, run, NullReporter(), HELD_OUT, execution=execution)


def progress_of(net: ProgressNet) -> np.ndarray:
    return np.concatenate([output.progress for output in score_episodes(net, HELD_OUT.episodes)])


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_trains_the_same_model_and_leaves_it_on_the_cpu(device: str, tmp_path: Path) -> None:
    expected, net = train_on("cpu", tmp_path / "cpu"), train_on(device, tmp_path / "device")
    assert {parameter.device.type for parameter in net.parameters()} == {"cpu"}
    tolerance = 0 if device == "cpu" else 0.03
    assert np.abs(progress_of(net) - progress_of(expected)).max() <= tolerance


@pytest.mark.parametrize("device", DEVICES)
def test_a_training_that_was_killed_on_a_device_continues_there(device: str, tmp_path: Path) -> None:
    arguments = (HELD_OUT, None, None, Execution(device=device))
    with pytest.raises(KilledError):
        train(episodes(8), QUICK, RunFolder.open(tmp_path), KillingReporter(50), *arguments)
    resumed = train(episodes(8), QUICK, RunFolder.open(tmp_path, resume=True), NullReporter(), *arguments)
    difference = np.abs(progress_of(resumed) - progress_of(train_on(device, tmp_path / "whole"))).max()
    assert difference <= (0 if device == "cpu" else 0.03)


@pytest.mark.parametrize("device", ["tpu", *({"cuda"} - set(DEVICES))])
def test_a_device_that_torch_lacks_is_an_error(device: str) -> None:
    with pytest.raises(UserError, match=rf"device.*{device}"):
        erm.train(episodes(2), device=device, steps=1, image_size=(32, 32))
