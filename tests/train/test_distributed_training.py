"""Processes that train together: the same model, in parts."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from curves import drawn
from sprites import episodes

from embodied_rm.checkpoint_io import MANIFEST_NAME
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.distributed import SINGLE_PROCESS, DistContext
from embodied_rm.errors import UserError
from embodied_rm.labels.labeled_episode import label
from embodied_rm.labels.schemes import select_schemes
from embodied_rm.logs.event_file import EVENT_FILE_PREFIX
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.encoders import resize_episode
from embodied_rm.train import CHECKPOINT_DIR, TRAIN_STATE_DIR, TrainConfig, make_forward, make_net, prepare_batch
from embodied_rm.train.augment import AugmentConfig
from embodied_rm.train.batches import LabeledBatchSampler
from embodied_rm.train.forward import microbatch_forwards, training_forward
from embodied_rm.train.objective import objective

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
    return load_progress_net(out / CHECKPOINT_DIR).state_dict()


@pytest.fixture(scope="module")
def run_of_two(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folder of two processes that nothing disturbed."""
    out = tmp_path_factory.mktemp("two") / "run"
    done = train(data, out, 2)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def two(run_of_two: Path) -> dict[str, torch.Tensor]:
    """What two processes learn."""
    return weights(run_of_two)


def test_two_processes_learn_what_one_does_also_when_they_are_killed(
    data: Path, tmp_path: Path, run_of_two: Path, two: dict[str, torch.Tensor]
) -> None:
    done = train(data, tmp_path / "1", 1, "accumulate=2")
    assert done.returncode == 0, done.stderr
    one = weights(tmp_path / "1")
    assert all(torch.equal(one[name], two[name]) for name in one), "two parts in one process, or one in each of two"

    often = ("checkpoint_seconds=1e-9",)
    kill(data, tmp_path / "killed", *often)
    again = train(data, tmp_path / "killed", 2, *often, "resume=true")
    assert again.returncode == 0, again.stderr
    ended = weights(tmp_path / "killed")
    assert all(torch.equal(ended[name], two[name]) for name in two), "as if nothing had happened"

    assert len(list(run_of_two.glob(f"{EVENT_FILE_PREFIX}*"))) == 1, "of two processes one draws curves"
    alone, undisturbed, interrupted = map(drawn, (tmp_path / "1", run_of_two, tmp_path / "killed"))
    for tag in ("loss/total", "gradient"):
        assert [step for step, _ in alone[tag]] == list(range(1, UPDATES + 1))
        assert alone[tag] == undisturbed[tag] == interrupted[tag]


def kill(data: Path, out: Path, *words: str) -> None:
    """Train in two processes, which die as soon as they have stored anything."""
    line = command(data, out, 2, *words)
    child = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    while not (out / TRAIN_STATE_DIR / MANIFEST_NAME).exists():
        assert child.poll() is None, "it ended before it stored anything"
        time.sleep(0.01)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def test_towers_that_are_shared_learn_what_whole_ones_do_also_when_they_are_killed(
    data: Path, tmp_path: Path, two: dict[str, torch.Tensor]
) -> None:
    done = train(data, tmp_path / "shared", 2, "shard=true")
    assert done.returncode == 0, done.stderr
    shared = weights(tmp_path / "shared")
    for name in two:
        torch.testing.assert_close(shared[name], two[name], rtol=0, atol=1e-5, msg=name)

    often = ("shard=true", "checkpoint_seconds=1e-9")
    kill(data, tmp_path / "killed", *often)
    shutil.copytree(tmp_path / "killed", tmp_path / "three")
    again = train(data, tmp_path / "killed", 2, *often, "resume=true")
    assert again.returncode == 0, again.stderr
    ended = weights(tmp_path / "killed")
    assert all(torch.equal(ended[name], shared[name]) for name in shared), "as if nothing had happened"
    more = train(data, tmp_path / "three", 3, *often, "resume=true")
    assert more.returncode == 0, more.stderr
    ended = weights(tmp_path / "three")
    assert max(float((ended[name] - shared[name]).abs().max()) for name in shared) < 0.02, "other sums, the same run"


def test_of_a_tower_that_is_shared_every_process_holds_a_part(data: Path, tmp_path: Path) -> None:
    """Half of weights, gradients and moments; with low-rank matrices beside weights that do not learn, in half
    precision, in parts; and the reader that does not learn stays whole."""
    script = tmp_path / "held.py"
    script.write_text(HELD)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    line = [sys.executable, *launcher, str(script), str(Path(__file__).parent), str(tmp_path)]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


HELD = """
import sys
from pathlib import Path

import torch
from torch.distributed.tensor import DTensor

sys.path.insert(0, sys.argv[1])
from sprites import episodes

from embodied_rm.distributed import joined
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.run_folder import RunFolder, Silent
from embodied_rm.train import TrainConfig, fitting, train

seen = []


class Watched(fitting.Learner):
    def update(self, losses, rate, group):
        super().update(losses, rate, group)
        cut = {name: p for name, p in self.module.named_parameters() if isinstance(p, DTensor)}
        assert not [name for name in cut if ".clip." not in name], "what stands on the towers is whole"
        moments = [v for o in self._optimizers.values() for s in o.state.values() for v in s.values()]
        for tensors in (cut.values(), [p.grad for p in cut.values() if p.grad is not None], moments):
            parts = [t for t in tensors if isinstance(t, DTensor)]
            held = sum(t.to_local().numel() for t in parts)
            assert 0.4 < held / sum(t.numel() for t in parts) < 0.6
        seen.append(set(cut))


fitting.Learner = Watched
CASES = {
    "both": {},
    "eye": {"train_tower": False, "lora": 2, "precision": "bfloat16", "accumulate": 2},
}
with joined("cpu") as group:
    for name, keys in CASES.items():
        config = TrainConfig(
            tower="test_vit", image_size=(160, 160), updates=2, batch=4, moments=3, **keys
        )
        out = Path(sys.argv[2]) / name
        net = train(episodes(4), config, RunFolder.open(out, resume=True), Silent(), group=group, shard=True)
        group.say("written")
        stored = load_progress_net(out / "checkpoint").state_dict()
        assert all(torch.equal(tensor, stored[key]) for key, tensor in net.state_dict().items())
        reader = [key for key in seen[-1] if ".clip." in key and ".visual." not in key]
        assert bool(reader) == (name == "both") and len(seen[-1]) > len(reader)
        blocks = [key for key in seen[-1] if ".blocks." in key]
        assert blocks
"""


def test_what_cannot_be_shared_is_refused(tmp_path: Path) -> None:
    config = TrainConfig(image_size=(32, 32), batch_size=6, frames_per_episode=4)
    net = make_net(episodes(2), config)
    with pytest.raises(UserError, match="shard=true shares towers among processes: torchrun"):
        make_forward(net, config, SINGLE_PROCESS, fsdp=True)
    kept = replace(
        config,
        train_tower=False,
        feature_cache_dir=tmp_path,
        augment=AugmentConfig(shift=0, color_jitter=0, brightness_jitter=0),
    )
    with pytest.raises(UserError, match="shard=true shares towers that cache never looks with"):
        make_forward(net, kept, DistContext(world_size=2), fsdp=True)


def test_a_batch_that_cannot_be_shared_is_refused(data: Path, tmp_path: Path) -> None:
    done = train(data, tmp_path / "odd", 2, "batch=5")
    assert done.returncode != 0 and "batch=5 cannot be shared evenly by 2 processes" in " ".join(done.stderr.split())
    with pytest.raises(UserError, match="batch=5 cannot be shared evenly by 2 processes"):
        DistContext(world_size=2).local_count(5, "batch")


def test_the_gradients_of_parts_add_up_to_that_of_the_whole_batch() -> None:
    config = TrainConfig(
        image_size=(32, 32), batch_size=6, frames_per_episode=4, augment=AugmentConfig(view_dropout_prob=0.3)
    )
    known = episodes(8) + episodes(4, start=100, task="return")
    net = make_net(known, config).train()
    batches = LabeledBatchSampler(
        label([resize_episode(e, net.config.views, (32, 32)) for e in known]), net.config.views
    )
    batch, images = prepare_batch(net.encoder, batches, config, 0)

    def gradient(parts: int) -> torch.Tensor:
        net.zero_grad(set_to_none=True)
        for outputs in microbatch_forwards(partial(training_forward, net), batch, images, SINGLE_PROCESS, parts):
            objective(outputs, batch, select_schemes(config.label_schemes), np.random.default_rng(1)).backward()
        return torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])

    whole = gradient(1)
    for parts in (2, 3, 6):
        torch.testing.assert_close(gradient(parts), whole, rtol=1e-4, atol=1e-6)
    with pytest.raises(UserError, match="accumulate=4 parts cannot be made of 6 episodes"):
        gradient(4)


def test_alone_there_is_nothing_to_gather() -> None:
    mine = torch.randn(3, requires_grad=True)
    assert SINGLE_PROCESS.all_gather_tensor(mine, 0) is mine
