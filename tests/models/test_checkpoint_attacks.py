"""Checkpoints with valid digests whose manifest or tensors are not as written: one sentence, and nothing is awaited."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from embodied_rm.checkpoint_io import MANIFEST_NAME, load_tensors, save_tensors
from embodied_rm.errors import CheckpointError
from embodied_rm.models.checkpoint import ARCHITECTURE, load_progress_net, save_progress_net
from embodied_rm.models.encoders import small_encoder_config
from embodied_rm.models.load_checkpoint import load_checkpoint
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.models.scoring import score_episodes, score_video
from embodied_rm.types import Episode, Views

FRAMES = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), np.uint8)


@pytest.fixture
def net() -> ProgressNet:
    encoder = small_encoder_config("patch_tower_tiny", (32, 32))
    return ProgressNet(NetConfig(views=("front",), encoder=encoder, width=8, num_layers=1, max_subtasks=2)).eval()


@pytest.fixture
def folder(net: ProgressNet, tmp_path: Path) -> Path:
    save_progress_net(tmp_path / "checkpoint", net, {})
    return tmp_path / "checkpoint"


def refused(folder: Path) -> str:
    with pytest.raises(CheckpointError) as error_info:
        load_checkpoint(folder)
    message = str(error_info.value)
    assert "\n" not in message and message.startswith(str(folder))
    return message


def seal(manifest: dict) -> bytes:
    """The manifest with a digest, as a writer that allows any value would write it."""
    rest = {key: value for key, value in manifest.items() if key != "manifest_sha256"}

    def dump(value: dict) -> str:
        return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    digest = hashlib.sha256(dump(rest).encode("utf-8", "surrogatepass")).hexdigest()
    return dump({**rest, "manifest_sha256": digest}).encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("value", ["NaN", "1e999", "-Infinity", '"\\ud800"', "7" * 5000, "[" * 900 + "]" * 900])
def test_values_that_a_manifest_cannot_hold(folder: Path, value: str) -> None:
    content = (folder / MANIFEST_NAME).read_text().replace('"facts": {}', f'"facts": {{"x": {value}}}')
    (folder / MANIFEST_NAME).write_text(content)
    assert MANIFEST_NAME in refused(folder)


@pytest.mark.parametrize("value", [float("nan"), "\ud800", ["nan", {"\udfff": 1}]])
def test_values_with_a_digest(folder: Path, value: object) -> None:
    manifest = json.loads((folder / MANIFEST_NAME).read_text())
    (folder / MANIFEST_NAME).write_bytes(seal(manifest | {"self_test": value}))
    assert MANIFEST_NAME in refused(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda net: net["encoder"].update(feature_level=99),
        lambda net: net["encoder"].update(feature_level=-99),
        lambda net: net["encoder"]["open_clip"]["text_cfg"].update(heads=0),
        lambda net: net["encoder"]["open_clip"]["text_cfg"].update(heads=7),
        lambda net: net["encoder"]["open_clip"]["text_cfg"].update(width=-1),
        lambda net: net["encoder"].update(image_size=[]),
        lambda net: net["encoder"].update(mean=[]),
        lambda net: net.update(width=10**30),
        lambda net: net.update(width=0),
        lambda net: net.update(grid_size=[0, 0]),
    ],
)
def test_descriptions_of_no_net(folder: Path, change: Callable[[dict], None]) -> None:
    tensors, manifest = load_tensors(folder, ARCHITECTURE)
    change(manifest["net"])
    save_tensors(folder, tensors, manifest)
    refused(folder)


def replace_tensors(folder: Path, content: bytes) -> None:
    """Write other content as the tensors, with valid digests."""
    manifest = json.loads((folder / MANIFEST_NAME).read_text())
    digest = hashlib.sha256(content).hexdigest()
    (folder / f"tensors-{digest[:16]}.safetensors").write_bytes(content)
    (folder / MANIFEST_NAME).write_bytes(seal(manifest | {"tensors_sha256": digest}))


@pytest.mark.parametrize("kind", ["F4", "F6_E2M3", "F8_E8M0", "U3", 7])
def test_types_of_tensors_that_torch_does_not_have(folder: Path, kind: object) -> None:
    header = json.dumps({"w": {"dtype": kind, "shape": [2], "data_offsets": [0, 1]}}).encode()
    replace_tensors(folder, struct.pack("<Q", len(header)) + header + b"\0")
    assert "safetensors" in refused(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite(net: ProgressNet, folder: Path, value: float) -> None:
    from embodied_rm.checkpoint_io import to_safetensors

    tensors = dict(net.state_dict())
    tensors["heads._hop.mlp.0.weight"] = torch.full_like(tensors["heads._hop.mlp.0.weight"], value)
    replace_tensors(folder, to_safetensors(tensors))
    assert "'heads._hop.mlp.0.weight' holds NaN or infinity" in refused(folder)


def test_progress_that_is_not_finite_is_one_sentence(net: ProgressNet, tmp_path: Path) -> None:
    """Finite weights can overflow to infinity minus infinity."""
    with torch.no_grad():
        for parameter in net.heads.parameters():
            parameter.mul_(1e30)
    with pytest.raises(CheckpointError, match="refusing to save a model whose progress is not finite"):
        save_progress_net(tmp_path, net, {})
    episode = Episode(name="one", views={"front": FRAMES}, instruction="lift", fps=10)
    with pytest.raises(CheckpointError, match="a progress that is not finite"):
        score_episodes(net, [episode])
    with pytest.raises(CheckpointError, match="a progress that is not finite"):
        score_video(net, "lift", [Views(names=("front",), frames=FRAMES[:, None])])


@pytest.mark.parametrize("name", [MANIFEST_NAME, "tensors"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_pipes_and_devices_are_not_opened(folder: Path, name: str, kind: str) -> None:
    (path,) = folder.glob(f"{name}*")
    path.unlink()
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    assert "not a regular file" in refused(folder)


def test_round_trip_is_unchanged(net: ProgressNet, folder: Path) -> None:
    assert load_progress_net(folder).config == net.config
