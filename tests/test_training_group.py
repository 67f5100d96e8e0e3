"""Processes that train together: the same model, in parts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from curves import drawn
from sprites import episodes

from embodied_rm.checkpoint_io import MANIFEST
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.errors import UserError
from embodied_rm.group import ALONE, Group
from embodied_rm.labels.frames import Batches, label
from embodied_rm.labels.schemes import chosen
from embodied_rm.logs.event_file import PREFIX
from embodied_rm.models.augment import AugmentConfig
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.encoders import sized
from embodied_rm.models.training_pass import shared_passes
from embodied_rm.objective import objective
from embodied_rm.train import CHECKPOINT, UNFINISHED, TrainConfig, new_net, prepared

UPDATES = 12
KEYS = ("image_size=[32,32]", "batch=6", "moments=4", f"updates={UPDATES}", "augment.drop_view=0.3")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "sprites"
    with DatasetWriter(folder) as writer:
        for episode in episodes(8) + episodes(4, start=100, task="return"):
            writer.add(episode)
    return folder


def command(data: Path, out: Path, processes: int, *words: str) -> list[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    return [sys.executable, *launcher, "-m", "embodied_rm", "train", f"data={data}", f"out={out}", *KEYS, *words]


def train(data: Path, out: Path, processes: int, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    line = command(data, out, processes, *words)
    return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300)


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_progress_net(out / CHECKPOINT).state_dict()


def test_two_processes_learn_what_one_does_also_when_they_are_killed(data: Path, tmp_path: Path) -> None:
    for processes in (1, 2):
        done = train(data, tmp_path / str(processes), processes, f"accumulate={2 // processes}")
        assert done.returncode == 0, done.stderr
    one, two = weights(tmp_path / "1"), weights(tmp_path / "2")
    assert all(torch.equal(one[name], two[name]) for name in one), "two parts in one process, or one in each of two"

    often = ("checkpoint_seconds=1e-9",)
    line = command(data, tmp_path / "killed", 2, *often)
    child = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    while not (tmp_path / "killed" / UNFINISHED / MANIFEST).exists():
        assert child.poll() is None, "it ended before it stored anything"
        time.sleep(0.01)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    again = train(data, tmp_path / "killed", 2, *often, "resume=true")
    assert again.returncode == 0, again.stderr
    ended = weights(tmp_path / "killed")
    assert all(torch.equal(ended[name], two[name]) for name in two), "as if nothing had happened"

    assert len(list((tmp_path / "2").glob(f"{PREFIX}*"))) == 1, "of two processes one draws curves"
    alone, undisturbed, interrupted = (drawn(tmp_path / name) for name in ("1", "2", "killed"))
    for tag in ("loss/total", "gradient"):
        assert [step for step, _ in alone[tag]] == list(range(1, UPDATES + 1))
        assert alone[tag] == undisturbed[tag] == interrupted[tag]


def test_a_batch_that_cannot_be_shared_is_refused(data: Path, tmp_path: Path) -> None:
    done = train(data, tmp_path / "odd", 2, "batch=5")
    assert done.returncode != 0 and "batch=5 cannot be shared evenly by 2 processes" in " ".join(done.stderr.split())
    with pytest.raises(UserError, match="batch=5 cannot be shared evenly by 2 processes"):
        Group(size=2).share(5, "batch")


def test_the_gradients_of_parts_add_up_to_that_of_the_whole_batch() -> None:
    config = TrainConfig(image_size=(32, 32), batch=6, moments=4, augment=AugmentConfig(drop_view=0.3))
    known = episodes(8) + episodes(4, start=100, task="return")
    net = new_net(known, config).train()
    batches = Batches(label([sized(e, net.config.views, (32, 32)) for e in known]), net.config.views)
    batch, pictures = prepared(net.encoder, batches, config, 0)

    def gradient(parts: int) -> torch.Tensor:
        net.zero_grad(set_to_none=True)
        for outputs in shared_passes(net, batch, pictures, ALONE, parts):
            objective(outputs, batch, chosen(config.labels), np.random.default_rng(1)).backward()
        return torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])

    whole = gradient(1)
    for parts in (2, 3, 6):
        torch.testing.assert_close(gradient(parts), whole, rtol=1e-4, atol=1e-6)
    with pytest.raises(UserError, match="accumulate=4 parts cannot be made of 6 episodes"):
        gradient(4)


def test_alone_there_is_nothing_to_gather() -> None:
    mine = torch.randn(3, requires_grad=True)
    assert ALONE.gathered(mine, 0) is mine
