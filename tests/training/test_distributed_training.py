"""Distributed training learns the same model as one process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from curves import read_scalars
from objectives import objective
from process_group import Result, kill, run, start
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
from embodied_rm.run_folder import RunFolder
from embodied_rm.training import CHECKPOINT_DIR, TRAIN_STATE_DIR, TrainConfig, make_net, prepare_batch
from embodied_rm.training.augment import AugmentConfig
from embodied_rm.training.batches import LabeledBatchSampler
from embodied_rm.training.fitting import make_forward
from embodied_rm.training.forward import microbatch_forwards, training_forward

STEPS = 12
OVERRIDES = (
    "image_size=[32,32]",
    "batch_size=6",
    "frames_per_episode=4",
    f"steps={STEPS}",
    "augment.view_dropout_prob=0.3",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "sprites"
    with DatasetWriter(folder) as writer:
        for episode in episodes(8) + episodes(4, start=100, task="return"):
            writer.add(episode)
    return folder


def train_command(data: Path, out: Path, *overrides: str) -> list[str]:
    return ["train", f"data={data}", f"out={out}", *OVERRIDES, *overrides]


def train(data: Path, out: Path, processes: int, *overrides: str) -> Result:
    return run(train_command(data, out, *overrides), processes, out.with_suffix(".log"))


def load_weights(out: Path) -> dict[str, torch.Tensor]:
    return load_progress_net(out / CHECKPOINT_DIR).state_dict()


@pytest.fixture(scope="module")
def two_process_run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folder of an uninterrupted training in two processes."""
    out = tmp_path_factory.mktemp("two") / "run"
    result = train(data, out, 2)
    assert result.returncode == 0, result.output
    return out


@pytest.fixture(scope="module")
def two_process_weights(two_process_run: Path) -> dict[str, torch.Tensor]:
    """Weights of an uninterrupted training in two processes."""
    return load_weights(two_process_run)


def test_two_processes_equal_one_and_resume_exactly(
    data: Path, tmp_path: Path, two_process_run: Path, two_process_weights: dict[str, torch.Tensor]
) -> None:
    result = train(data, tmp_path / "1", 1, "gradient_accumulation_steps=2")
    assert result.returncode == 0, result.output
    weights = load_weights(tmp_path / "1")
    assert all(torch.equal(weights[name], tensor) for name, tensor in two_process_weights.items()), (
        "two microbatches in one process equal one in each of two"
    )

    save_always = ("checkpoint_seconds=1e-9",)
    train_and_kill(data, tmp_path / "killed", *save_always)
    resumed = train(data, tmp_path / "killed", 2, *save_always, "resume=true")
    assert resumed.returncode == 0, resumed.output
    resumed_weights = load_weights(tmp_path / "killed")
    assert all(torch.equal(resumed_weights[name], tensor) for name, tensor in two_process_weights.items())

    assert len(list(two_process_run.glob(f"{EVENT_FILE_PREFIX}*"))) == 1, "only rank 0 logs"
    single, uninterrupted, interrupted = map(read_scalars, (tmp_path / "1", two_process_run, tmp_path / "killed"))
    for tag in ("loss/total", "grad_norm"):
        assert [step for step, _ in single[tag]] == list(range(1, STEPS + 1))
        assert single[tag] == uninterrupted[tag] == interrupted[tag]


def test_two_processes_keep_the_best_weights_of_one(data: Path, tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "unseen") as writer:
        for episode in episodes(3, start=500):
            writer.add(episode)
    options = (f"held_out={tmp_path / 'unseen'}", "eval_percent=25", "patience=2")
    for processes, accumulation_steps in ((2, 1), (1, 2)):
        out = tmp_path / str(processes)
        result = train(data, out, processes, *options, f"gradient_accumulation_steps={accumulation_steps}")
        assert result.returncode == 0, result.output
        assert (out / "report.html").exists() and result.output.count("held out at 0 %: error") == 1
    curves = [RunFolder(tmp_path / name).read_json("metrics.json")["train"]["held_out"] for name in ("1", "2")]
    assert curves[0] == curves[1] and len(curves[0]["curve"]) > 2
    weights, other_weights = load_weights(tmp_path / "1"), load_weights(tmp_path / "2")
    assert all(torch.equal(weights[name], tensor) for name, tensor in other_weights.items())


def train_and_kill(data: Path, out: Path, *overrides: str) -> None:
    """Train in two processes and kill them after their first save."""
    group = start(train_command(data, out, *overrides), 2, out.with_suffix(".log"))
    while not (out / TRAIN_STATE_DIR / MANIFEST_NAME).exists():
        assert all(process.is_alive() for process in group), "training ended before its first save"
        time.sleep(0.01)
    kill(group)


def test_sharded_towers_learn_like_replicated_ones_and_resume_exactly(
    data: Path, tmp_path: Path, two_process_weights: dict[str, torch.Tensor]
) -> None:
    result = train(data, tmp_path / "sharded", 2, "fsdp=true")
    assert result.returncode == 0, result.output
    sharded = load_weights(tmp_path / "sharded")
    for name in two_process_weights:
        torch.testing.assert_close(sharded[name], two_process_weights[name], rtol=0, atol=1e-5, msg=name)

    save_always = ("fsdp=true", "checkpoint_seconds=1e-9")
    train_and_kill(data, tmp_path / "killed", *save_always)
    shutil.copytree(tmp_path / "killed", tmp_path / "three")
    resumed = train(data, tmp_path / "killed", 2, *save_always, "resume=true")
    assert resumed.returncode == 0, resumed.output
    resumed_weights = load_weights(tmp_path / "killed")
    assert all(torch.equal(resumed_weights[name], sharded[name]) for name in sharded), "resuming is exact"
    three_processes = train(data, tmp_path / "three", 3, *save_always, "resume=true")
    assert three_processes.returncode == 0, three_processes.output
    resumed_weights = load_weights(tmp_path / "three")
    assert max(float((resumed_weights[name] - sharded[name]).abs().max()) for name in sharded) < 0.02, (
        "three processes sum in another order"
    )


def test_every_process_holds_a_shard_of_the_towers(data: Path, tmp_path: Path) -> None:
    """Each holds half of the weights, gradients and Adam moments, also with LoRA, bfloat16 and gradient accumulation.
    A frozen text tower stays replicated."""
    script = tmp_path / "check_shards.py"
    script.write_text(CHECK_SHARDS)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    line = [sys.executable, *launcher, str(script), str(Path(__file__).parent.parent), str(tmp_path)]
    result = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr


CHECK_SHARDS = """
import sys
from pathlib import Path

import torch
from torch.distributed.tensor import DTensor

sys.path.insert(0, sys.argv[1])
from sprites import episodes

from embodied_rm.distributed import init_distributed
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.training import Execution, TrainConfig, fitting, train

sharded_names = []


class CheckedTrainState(fitting.TrainState):
    def update(self, losses, learning_rate, group):
        super().update(losses, learning_rate, group)
        sharded = {name: p for name, p in self.module.named_parameters() if isinstance(p, DTensor)}
        assert not [name for name in sharded if ".clip." not in name], "the net on top of the towers is replicated"
        moments = [v for o in self._optimizers.values() for s in o.state.values() for v in s.values()]
        for tensors in (sharded.values(), [p.grad for p in sharded.values() if p.grad is not None], moments):
            shards = [t for t in tensors if isinstance(t, DTensor)]
            local = sum(t.to_local().numel() for t in shards)
            assert 0.4 < local / sum(t.numel() for t in shards) < 0.6
        sharded_names.append(set(sharded))


fitting.TrainState = CheckedTrainState
CASES = {
    "both": {},
    "image_only": {"train_encoder": False, "lora_rank": 2, "precision": "bfloat16", "gradient_accumulation_steps": 2},
}
with init_distributed("cpu") as group:
    for name, fields in CASES.items():
        config = TrainConfig(
            encoder="test_vit", image_size=(160, 160), steps=2, batch_size=4, frames_per_episode=3, **fields
        )
        out, execution = Path(sys.argv[2]) / name, Execution(group=group, fsdp=True)
        net = train(episodes(4), config, RunFolder.open(out, resume=True), NullReporter(), execution=execution)
        group.all_gather_object("saved")
        stored = load_progress_net(out / "checkpoint").state_dict()
        assert all(torch.equal(tensor, stored[key]) for key, tensor in net.state_dict().items())
        text_encoder = [key for key in sharded_names[-1] if ".clip." in key and ".visual." not in key]
        assert bool(text_encoder) == (name == "both") and len(sharded_names[-1]) > len(text_encoder)
        assert [key for key in sharded_names[-1] if ".blocks." in key]
"""


def test_invalid_sharding_is_rejected(tmp_path: Path) -> None:
    config = TrainConfig(image_size=(32, 32), batch_size=6, frames_per_episode=4)
    net = make_net(episodes(2), config)
    with pytest.raises(UserError, match="fsdp=true shards towers among processes: torchrun"):
        make_forward(net, config, SINGLE_PROCESS, fsdp=True)
    cached = replace(
        config,
        train_encoder=False,
        feature_cache_dir=tmp_path,
        augment=AugmentConfig(shift=0, color_jitter=0, brightness_jitter=0),
    )
    with pytest.raises(UserError, match="fsdp=true shards towers that feature_cache_dir= never runs"):
        make_forward(net, cached, DistContext(world_size=2), fsdp=True)


def test_indivisible_batch_is_rejected(data: Path, tmp_path: Path) -> None:
    result = train(data, tmp_path / "odd", 2, "batch_size=5")
    assert result.returncode != 0 and "batch_size=5 cannot be shared evenly by 2 processes" in " ".join(
        result.output.split()
    )
    with pytest.raises(UserError, match="batch_size=5 cannot be shared evenly by 2 processes"):
        DistContext(world_size=2).local_count(5, "batch_size")


def test_gradients_of_microbatches_sum_to_that_of_the_batch() -> None:
    config = TrainConfig(
        image_size=(32, 32), batch_size=6, frames_per_episode=4, augment=AugmentConfig(view_dropout_prob=0.3)
    )
    data = episodes(8) + episodes(4, start=100, task="return")
    net = make_net(data, config).train()
    sampler = LabeledBatchSampler(
        label([resize_episode(e, net.config.views, (32, 32)) for e in data]), net.config.views
    )
    batch, images = prepare_batch(net.encoder, sampler, config, 0)

    def gradient(accumulation_steps: int) -> torch.Tensor:
        net.zero_grad(set_to_none=True)
        for outputs in microbatch_forwards(
            partial(training_forward, net), batch, images, SINGLE_PROCESS, accumulation_steps
        ):
            objective(outputs, batch, select_schemes(config.label_schemes), np.random.default_rng(1)).backward()
        return torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])

    expected = gradient(1)
    for parts in (2, 3, 6):
        torch.testing.assert_close(gradient(parts), expected, rtol=1e-4, atol=1e-6)
    with pytest.raises(UserError, match="gradient_accumulation_steps=4 must divide the 6 episodes"):
        gradient(4)


def test_single_process_gather_is_the_identity() -> None:
    tensor = torch.randn(3, requires_grad=True)
    assert SINGLE_PROCESS.all_gather_tensor(tensor, 0) is tensor
