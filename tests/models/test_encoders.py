"""Encoders: small ones by name, pretrained ones from a folder, and the tokenizer of open_clip."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.models.encoders import VOCAB_SIZE, Encoder, resize_frames, small_encoder_config
from embodied_rm.models.make_encoder import make_encoder
from embodied_rm.models.tokens import simple_tokenizer, tokenize

import open_clip  # isort: skip
from safetensors.torch import save_file

WORDS = (
    "red blue green yellow black white lift raise pick grab take up the a cube block drawer knob open close shut pull "
    "push slide put store tidy place inside into in out of away and then off table cup bottle left right clean"
)
TEXT = {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1}
VISION = {
    "vit": {"image_size": [32, 48], "layers": 2, "width": 64, "patch_size": 8, "head_width": 32},
    "timm": {"timm_model_name": "mobilenetv3_small_050", "timm_pool": "avg", "timm_proj": "linear", "image_size": 64},
}


@pytest.fixture(params=sorted(VISION))
def pretrained(request, tmp_path: Path) -> tuple[Path, torch.nn.Module]:
    """A folder as `open_clip` pushes it to a hub, and its model."""
    torch.manual_seed(1)
    model = open_clip.model.CLIP(embed_dim=32, vision_cfg=dict(VISION[request.param]), text_cfg=dict(TEXT)).eval()
    description = {
        "model_cfg": {"embed_dim": 32, "vision_cfg": VISION[request.param], "text_cfg": TEXT},
        "preprocess_cfg": {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.25, 0.3]},
    }
    (tmp_path / "open_clip_config.json").write_text(json.dumps(description))
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, tmp_path / "open_clip_model.safetensors")
    return tmp_path, model


def test_feature_shape_changes_nothing():
    """A blank image must not enter the batch statistics."""
    encoder = make_encoder("mobilenetv3_small_050", (32, 32))
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    assert encoder.training and encoder.feature_shape()[1:] == (1, 1) and encoder.training
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())


def test_pretrained_model_encodes_as_open_clip_does(pretrained):
    folder, model = pretrained
    encoder = make_encoder(f"local-dir:{folder}", (64, 64), trainable=False).eval()
    images = torch.randn(2, 3, *encoder.config.image_size)
    sentences = ["open the drawer", "lift the red cube"]
    with torch.no_grad():
        expected_maps = model.visual.forward_intermediates(
            images, indices=[-1], normalize_intermediates=True, intermediates_only=True
        )
        torch.testing.assert_close(
            encoder.encode_image(images), expected_maps["image_intermediates"][0], atol=1e-5, rtol=1e-4
        )
        vectors = encoder.encode_tokens(encoder.tokenize(sentences))
        expected = model.encode_text(open_clip.SimpleTokenizer(context_length=16)(sentences))
    torch.testing.assert_close(vectors, expected)
    gray = torch.full((1, 8, 8, 3), 102, dtype=torch.uint8)
    assert encoder.preprocess(gray)[0, 0, 0, 0] == pytest.approx(0, abs=1e-5)
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    assert not encoder.train().clip.training


def test_pickled_weights_are_not_read(pretrained):
    folder, _ = pretrained
    (folder / "open_clip_model.safetensors").unlink()
    (folder / "open_clip_pytorch_model.bin").write_bytes(pickle.dumps({"state_dict": {}}))
    with pytest.raises(CheckpointError, match="pickled weights are not read"):
        make_encoder(f"local-dir:{folder}", (64, 64))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda description: description["model_cfg"]["text_cfg"].update(width=64), "does not hold the model"),
        (lambda description: description["model_cfg"]["text_cfg"].update(hf_model_name="x/y"), "Hugging Face"),
        (lambda description: description["model_cfg"].pop("text_cfg"), "text_cfg must describe a tower"),
        (
            lambda description: description["model_cfg"]["vision_cfg"].update(color="red"),
            "unknown key of vision_cfg 'color'",
        ),
        (lambda description: description.pop("model_cfg"), "not the description of an open_clip model"),
    ],
)
def test_invalid_folder_raises(pretrained, change, message):
    folder, _ = pretrained
    description = json.loads((folder / "open_clip_config.json").read_text())
    change(description)
    (folder / "open_clip_config.json").write_text(json.dumps(description))
    with pytest.raises(CheckpointError, match=message):
        make_encoder(f"local-dir:{folder}", (64, 64))


def test_missing_folder_raises(tmp_path):
    with pytest.raises(CheckpointError, match=r"nowhere/open_clip_config.json: cannot be read"):
        make_encoder(f"local-dir:{tmp_path}/nowhere", (64, 64))


@pytest.mark.parametrize(
    ("tower", "feature_level", "shape"),
    [
        ("patch_tower_tiny", -1, (64, 8, 8)),
        ("patch_tower_tiny", 0, (32, 16, 16)),
        ("stride_tower_tiny", -1, (64, 8, 8)),
        ("stride_tower_tiny", 0, (32, 16, 16)),
        ("mobilenetv3_small_050", 2, (16, 8, 8)),
        ("test_efficientnet", -1, (64, 2, 2)),
    ],
)
def test_any_timm_tower_and_feature_level(tower, feature_level, shape):
    encoder = Encoder(small_encoder_config(tower, (64, 64), feature_level))
    assert encoder.feature_shape() == shape
    loaded = Encoder(small_encoder_config(tower, (64, 64), feature_level))
    loaded.load_state_dict(encoder.state_dict())
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(loaded.eval().encode_image(images), encoder.eval().encode_image(images))


def test_unknown_tower_suggests_the_nearest_name():
    with pytest.raises(UserError, match=r"'stride_tower_tny'. Did you mean 'stride_tower_tiny'"):
        make_encoder("stride_tower_tny", (64, 64))


def test_token_ids_equal_those_of_open_clip_with_its_full_vocabulary():
    sentences = ["Open the drawer, please!", "lift " * 40, "", "naïve ☂"]
    assert torch.equal(tokenize(sentences, 16, 49408), open_clip.SimpleTokenizer(context_length=16)(sentences))


def test_hashed_ids_are_distinct_for_robot_words_and_end_with_the_end_token():
    ids = tokenize([WORDS], 128, VOCAB_SIZE)[0]
    used = ids[ids > 0]
    assert used.max() == VOCAB_SIZE - 1 and used[-1] == VOCAB_SIZE - 1 and used[0] == VOCAB_SIZE - 2
    assert len(set(used.tolist())) == len(simple_tokenizer().encode(WORDS)) + 2
    assert torch.equal(ids[: len(used)], used), "nothing behind the end"


def test_resize_frames():
    frames = np.random.default_rng(0).integers(0, 256, (70, 16, 24, 3), np.uint8)
    assert resize_frames(frames, (16, 24)) is frames
    flat = np.full((3, 16, 24, 3), 77, np.uint8)
    assert (resize_frames(flat, (8, 12)) == 77).all()
    assert resize_frames(frames, (8, 12)).shape == (70, 8, 12, 3)
