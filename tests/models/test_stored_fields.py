"""Checkpoints with valid digests whose manifests or tensors hold other values: one sentence when they are loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from embodied_rm.checkpoint_io import load_tensors, save_tensors
from embodied_rm.errors import CheckpointError
from embodied_rm.models import checkpoint as progress_checkpoint
from embodied_rm.models.encoders import small_encoder_config
from embodied_rm.models.in_context import demonstration_checkpoint as demonstrations
from embodied_rm.models.load_checkpoint import load_checkpoint
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.models.zero_shot import zero_shot_checkpoint
from embodied_rm.paths import REAL_CHECKPOINT
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec, load_policy, save_policy

DEMONSTRATION = demonstrations.ARCHITECTURE


def change(folder: Path, source: Path, architecture: str, path: str, value: Any) -> None:
    """Write a copy of a checkpoint with another value in its manifest, and valid digests."""
    tensors, manifest = load_tensors(source, architecture)
    *parents, last = path.split(".")
    entry: Any = manifest
    for name in parents:
        entry = entry[int(name)] if isinstance(entry, list) else entry[name]
    entry[last] = value
    save_tensors(folder, tensors, manifest)


def refuse(load: Callable[[Path], object], folder: Path) -> str:
    with pytest.raises(CheckpointError) as error:
        load(folder)
    message = str(error.value)
    assert "\n" not in message and len(message) < 1000
    return message


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    encoder = small_encoder_config("patch_tower_tiny", (32, 32))
    config = NetConfig(views=("front", "top"), encoder=encoder, width=8, num_layers=1, max_subtasks=2)
    folder = tmp_path_factory.mktemp("net")
    progress_checkpoint.save_progress_net(folder, ProgressNet(config).eval(), {})
    return folder


NET_CHANGES = [
    ("net.fusion", "a"),
    ("net.median_ood", "a"),
    ("net.median_ood", -1.0),
    ("net.interval_scale", "a"),
    ("net.interval_scale", [1.0]),
    ("net.success_threshold", 2.0),
    ("net.views", [0, "top"]),
    ("net.views", ["top", "top"]),
    ("net.views", "ab"),
    ("net.width", 8.0),
    ("net.grid_size", [8]),
    ("net.encoder.trainable", "no"),
    ("net.encoder.mean", [0.5, "a", 0.5]),
    ("facts", 7),
    ("facts", None),
]


@pytest.mark.parametrize(("path", "value"), NET_CHANGES)
def test_a_net_of_other_values_is_refused(net: Path, tmp_path: Path, path: str, value: object) -> None:
    change(tmp_path, net, progress_checkpoint.ARCHITECTURE, path, value)
    assert path.split(".")[-1] in refuse(load_checkpoint, tmp_path)


ZERO_SHOT_CHANGES = [
    ("net.relevance_weight", None),
    ("net.relevance_weight", 7.0),
    ("net.relevance.slopes", [1.0, 2.0]),
    ("net.success.slopes", [1.0]),
    ("net.success.bias", "x"),
    ("net.move_threshold", ""),
    ("net.gru.dropout", None),
    ("encoder.name", "x" * 100_000),
]


@pytest.mark.parametrize(("path", "value"), ZERO_SHOT_CHANGES)
def test_a_zero_shot_model_of_other_values_is_refused(tmp_path: Path, path: str, value: object) -> None:
    change(tmp_path, REAL_CHECKPOINT, zero_shot_checkpoint.ARCHITECTURE, path, value)
    refuse(load_checkpoint, tmp_path)


POLICY_CHANGES = [
    ("obs_dim", 3.0),
    ("action_dim", True),
    ("hidden", [4.0]),
    ("hidden", "4"),
    ("views", [1, [2]]),
    ("length_dims", 1.0),
    ("log_std_init", "x"),
    ("log_std_init", -100.0),
    ("obs_mode", None),
    ("encoder_sha256", 5),
]


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    save_policy(tmp_path / "policy", GaussianPolicy(PolicySpec(obs_dim=3, action_dim=1, hidden=(4,))))
    return tmp_path / "policy"


@pytest.mark.parametrize(("name", "value"), POLICY_CHANGES)
def test_a_policy_of_other_values_is_refused(policy: Path, tmp_path: Path, name: str, value: object) -> None:
    assert load_policy(policy).spec.action_dim == 1
    change(tmp_path / "other", policy, "gaussian_policy", f"spec.{name}", value)
    assert "the manifest holds no policy spec" in refuse(load_policy, tmp_path / "other")


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_policy_that_divides_by_zero_is_refused(policy: Path, tmp_path: Path, value: float) -> None:
    tensors, manifest = load_tensors(policy, "gaussian_policy")
    save_tensors(tmp_path / "other", {**tensors, "normalizer.std": torch.full((3,), value)}, manifest)
    assert "normalizer.std must be >= 0.01" in refuse(load_policy, tmp_path / "other")


@pytest.fixture(scope="module")
def demonstrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from embodied_rm.models.in_context.demonstration_model import DemonstrationModel
    from embodied_rm.types import Episode

    video = np.random.default_rng(0).integers(0, 256, (12, 48, 48, 3), np.uint8)
    episode = Episode(name="a", instruction="go", views={"front": video}, fps=10.0, success=True)
    folder = tmp_path_factory.mktemp("demonstration")
    demonstrations.save_demonstration_model(folder, DemonstrationModel([episode]), {})
    assert load_checkpoint(folder) is not None
    return folder


DEMONSTRATION_CHANGES = [
    ("demonstrations.0.frame_rate", 0),
    ("demonstrations.0.frame_rate", "nan"),
    ("demonstrations.0.move_threshold", -1.0),
    ("demonstrations.0.frame_weight", "inf"),
    ("demonstrations.0.skill.trust", 7.0),
    ("demonstrations.0.skill.variance", 0.0),
    ("demonstrations.0.views", []),
    ("demonstrations", []),
    ("encoder.name", "x" * 100_000),
]


@pytest.mark.parametrize(("path", "value"), DEMONSTRATION_CHANGES)
def test_a_demonstration_of_other_values_is_refused(
    demonstrated: Path, tmp_path: Path, path: str, value: object
) -> None:
    change(tmp_path, demonstrated, DEMONSTRATION, path, value)
    refuse(load_checkpoint, tmp_path)
    if path.endswith("frame_rate"):
        refuse(demonstrations.stored_frame_rate, tmp_path)


TENSOR_CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "0.progress": lambda tensor: tensor + 7,
    "0.progress ": torch.zeros_like,
    "0.progress  ": lambda tensor: tensor[:-1],
    "0.progress   ": lambda tensor: tensor.long(),
    "0.duration": lambda tensor: 2 * tensor,
    "0.subtasks": lambda tensor: tensor.float(),
    "0.0.coarse": lambda tensor: tensor[:, :-1],
    "0.0.coarse ": lambda tensor: tensor[..., :-1],
    "0.0.scene": lambda tensor: tensor[:-1],
    "0.0.changed": lambda tensor: tensor[:, :-1],
    "0.0.scales": torch.zeros_like,
    "0.0.scales ": lambda tensor: tensor[:2],
    "0.0.motion": lambda tensor: tensor[None],
    "0.0.directions": lambda tensor: tensor[:-1],
    "0.0.gains": lambda tensor: tensor[:-1],
    "0.0.weights.0": lambda tensor: tensor[:-1],
}


@pytest.mark.parametrize("name", TENSOR_CHANGES)
def test_tensors_of_no_demonstration_are_refused(demonstrated: Path, tmp_path: Path, name: str) -> None:
    tensors, manifest = load_tensors(demonstrated, DEMONSTRATION)
    changed = TENSOR_CHANGES[name](tensors[name.strip()]).contiguous()
    save_tensors(tmp_path, {**tensors, name.strip(): changed}, manifest)
    assert "describes no demonstrations" in refuse(load_checkpoint, tmp_path)
