"""A checkpoint of a few kB that describes a network of petabytes is refused in a moment, with little memory."""

from __future__ import annotations

import contextlib
import json
import resource
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from embodied_rm.build_limit import BuildLimit, limit_build
from embodied_rm.checkpoint_io import load_tensors, save_tensors
from embodied_rm.errors import CheckpointError
from embodied_rm.models import checkpoint as progress_checkpoint
from embodied_rm.models.encoders import small_encoder_config
from embodied_rm.models.in_context import demonstration_checkpoint
from embodied_rm.models.load_checkpoint import load_checkpoint
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.models.zero_shot import zero_shot_checkpoint
from embodied_rm.models.zero_shot.progress_filter import Readout
from embodied_rm.models.zero_shot.progress_gru import ProgressGruConfig
from embodied_rm.models.zero_shot.sentence_match import SentenceMatchConfig
from embodied_rm.models.zero_shot.zero_shot_net import ZeroShotConfig, ZeroShotNet
from embodied_rm.rl.imagination.world_model import WorldModel, load_world_model, save_world_model
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec, load_policy, save_policy

HUGE = 10**6
MAX_SECONDS, MEMORY_BYTES = 30.0, 3 << 30


@pytest.fixture(autouse=True)
def little_memory_and_time() -> Iterator[None]:
    """The address space may grow by 3 GiB, most of which is that of threads and libraries."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, hard))
    start_s = time.perf_counter()
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert time.perf_counter() - start_s < MAX_SECONDS


def refused(call: Callable[[], object], folder: Path) -> str:
    with pytest.raises(CheckpointError) as error_info:
        call()
    message = str(error_info.value)
    assert message.startswith(str(folder)) and "\n" not in message and len(message) < 600
    return message


def set_entry(value: dict[str, Any], path: str, new: Any) -> None:
    *parents, last = path.split(".")
    for name in parents:
        value = value[name]
    value[last] = new


def change_manifest(folder: Path, architecture: str, path: str, new: Any) -> None:
    tensors, manifest = load_tensors(folder, architecture)
    set_entry(manifest, path, new)
    save_tensors(folder, tensors, manifest)


@pytest.fixture(scope="module")
def progress_net() -> ProgressNet:
    encoder = small_encoder_config("patch_tower_tiny", (32, 32))
    return ProgressNet(NetConfig(views=("front",), encoder=encoder, width=8, num_layers=1, max_subtasks=2)).eval()


TEXT = "encoder.open_clip.text_cfg"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("width", HUGE),
        ("num_layers", 10**5),
        ("num_layers", 10**12),
        ("channels", HUGE),
        ("max_subtasks", 10**9),
        ("views", [str(i) for i in range(10**4)]),
        ("grid_size", [HUGE, HUGE]),
        ("encoder.image_size", [10**5, 10**5]),
        ("encoder.image_size", [3000.0, 10]),
        ("encoder.open_clip.embed_dim", 10**8),
        (f"{TEXT}.width", HUGE),
        (f"{TEXT}.layers", 10**5),
        (f"{TEXT}.context_length", 10**5),
        (f"{TEXT}.vocab_size", 10**8),
        ("encoder.open_clip.vision_cfg.timm_model_name", "eva02_enormous_patch14_clip_224"),
    ],
)
def test_progress_net(progress_net: ProgressNet, tmp_path: Path, path: str, value: object) -> None:
    progress_checkpoint.save_progress_net(tmp_path, progress_net, {})
    change_manifest(tmp_path, progress_checkpoint.ARCHITECTURE, f"net.{path}", value)
    if path == "grid_size":  # a smaller feature map is kept: nothing of that size is made
        assert load_checkpoint(tmp_path) is not None
    else:
        refused(lambda: load_checkpoint(tmp_path), tmp_path)


def zero_shot_config() -> ZeroShotConfig:
    readout = Readout(0.0, (1.0, 1.0))
    return ZeroShotConfig(
        gru=ProgressGruConfig(channels=3, text_width=4, cell_width=2, width=4),
        match=SentenceMatchConfig(channels=3, text_width=4, num_bank_images=2, width=4),
        num_members=2,
        fine_channels=3,
        move_threshold=0.1,
        success=readout,
        relevance=readout,
        relevance_weight=0.5,
    )


ZERO_SHOT_CHANGES = [
    ("num_members", HUGE),
    ("fine_channels", 10**7),
    *((f"gru.{name}", 10**9) for name in ("channels", "text_width", "cell_width", "width")),
    *((f"match.{name}", 10**9) for name in ("channels", "text_width", "num_bank_images", "width")),
]


@pytest.mark.parametrize(("path", "value"), ZERO_SHOT_CHANGES)
@pytest.mark.parametrize("architecture", [zero_shot_checkpoint.ARCHITECTURE, demonstration_checkpoint.ARCHITECTURE])
def test_zero_shot_net(tmp_path: Path, architecture: str, path: str, value: int) -> None:
    net = ZeroShotNet(zero_shot_config())
    described = zero_shot_checkpoint.describe_net_config(net.config)
    set_entry(described, path, value)
    encoder = {"name": "x", "sha256": "x"}
    manifest = {
        "architecture": architecture,
        "facts": {},
        "encoder": encoder,
        "text_encoder": encoder,
        "net": described,
    }
    save_tensors(tmp_path, net.state_dict(), manifest | {"demonstrations": [], "direction_net": described})
    refused(lambda: load_checkpoint(tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("obs_dim", 10**9),
        ("action_dim", 10**9),
        ("hidden", [10**5] * 2),
        ("hidden", [1] * 10**5),
        ("hidden", [5000] * 2),
    ],
)
def test_policy(tmp_path: Path, path: str, value: object) -> None:
    save_policy(tmp_path, GaussianPolicy(PolicySpec(obs_dim=3, action_dim=2, hidden=(4,))))
    change_manifest(tmp_path, "gaussian_policy", f"spec.{path}", value)
    assert "larger network" in refused(lambda: load_policy(tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        *((name, 10**9) for name in ("obs_dim", "action_dim", "embedding_dim", "num_members")),
        ("hidden", [10**5] * 2),
        ("hidden", [1] * 10**5),
        ("hidden", [0]),
        ("hidden", [-1]),
        ("hidden", "many"),
    ],
)
def test_world_model(tmp_path: Path, path: str, value: object) -> None:
    save_world_model(tmp_path, WorldModel(3, 2, 4, (5,), 2), {})
    change_manifest(tmp_path, "world_model", f"sizes.{path}", value)
    refused(lambda: load_world_model(tmp_path), tmp_path)


TENSORS = {"weight": torch.zeros(10)}


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(10**11),
        lambda: torch.arange(0.0, 1.0, 1e-11),
        lambda: torch.linspace(0, 1, 10**11),
        lambda: torch.eye(10**6),
        lambda: torch.ones(1).repeat(10**11),
        lambda: torch.ones(1).expand(10**11).clone(),
        lambda: torch.zeros_like(torch.ones(1).expand(10**11)),
        lambda: torch.ones(1).new_full((10**6, 10**6), 1),
        lambda: torch.randint(3, (10**11,)),
        lambda: torch.randint(0, 3, (10**11,)),
        lambda: [nn.ReLU(torch.ones(1)) for _ in range(10**6)],
    ],
)
def test_every_way_to_allocate(make: Callable[[], object]) -> None:
    message = "describes a larger network than its 1 weights of 40 bytes"
    with pytest.raises(CheckpointError, match=message), limit_build(TENSORS, "folder"):
        make()


def test_hidden_error_is_raised_at_the_end() -> None:
    expected, hidden = pytest.raises(CheckpointError, match="a larger network"), contextlib.suppress(MemoryError)
    with expected, limit_build(TENSORS, "folder"), hidden:
        torch.empty(10**12)


def test_nothing_else_is_limited() -> None:
    """Tensors without memory, other threads, and what follows."""
    made = list[Tensor]()
    with BuildLimit("folder", 0, 0):
        assert torch.empty(10**12, device="meta").to(torch.float16).numel() == 10**12
        assert torch.empty_like(torch.empty(10**12, device="meta")).is_meta
        thread = threading.Thread(target=lambda: made.append(torch.zeros(10**8, dtype=torch.uint8)))
        thread.start()
        thread.join()
    made.append(torch.zeros(10**8, dtype=torch.uint8))
    assert [tensor.numel() for tensor in made] == [10**8] * 2


def test_weights_are_those_without_the_limit() -> None:
    torch.manual_seed(0)
    free = nn.Linear(3, 4)
    torch.manual_seed(0)
    with limit_build(free.state_dict(), "folder"):
        limited = nn.Linear(3, 4)
    assert np.array_equal(free.weight.detach(), limited.weight.detach())
    assert json.dumps(limited.bias.tolist()) == json.dumps(free.bias.tolist())
