"""Encoders of `transformers`: the same outputs as the library, and no code from their folders.

Every architecture is built small with random weights and saved by the library.
"""

from __future__ import annotations

import json
from pathlib import Path

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import numpy as np
import pytest
import torch
from sprites import episodes
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.make_encoder import make_encoder
from embodied_rm.models.onnx_export import export_graphs
from embodied_rm.models.scoring import score_episodes
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.training import CHECKPOINT_DIR, TrainConfig, train
from embodied_rm.training.augment import AugmentConfig

import transformers  # isort: skip

SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
VISION = {**SMALL, "image_size": 32, "patch_size": 8}
TEXT = {
    **SMALL,
    "vocab_size": 64,
    "max_position_embeddings": 16,
    "pad_token_id": 1,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
WORDS = ("open", "close", "the", "drawer", "lift", "drop", "red", "cube", "carry", "to", "left", "right", "return")
SENTENCES = ["open the red drawer", "lift", "close the drawer to the left right return carry cube cube cube cube cube"]


def write_tokenizer(folder: Path) -> Tokenizer:
    """Write a tokenizer.json as released models have it: one token per word, a start and an end."""
    vocabulary = {name: i for i, name in enumerate(["<unk>", "<pad>", "<s>", "</s>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 2), ("</s>", 3)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def save_clip(folder: Path) -> Path:
    text = {**TEXT, "projection_dim": 24}
    config = transformers.CLIPConfig(text_config=text, vision_config=dict(VISION), projection_dim=24)
    transformers.CLIPModel(config).save_pretrained(folder)
    write_tokenizer(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.4] * 3, "image_std": [0.2] * 3}))
    return folder


def save_siglip(folder: Path) -> Path:
    text = {**TEXT, "projection_size": 24}
    transformers.SiglipModel(transformers.SiglipConfig(text_config=text, vision_config=dict(VISION))).save_pretrained(
        folder
    )
    write_tokenizer(folder)
    return folder


def save_vision_model(folder: Path, kind: str) -> Path:
    kinds = {
        "dinov2": (transformers.Dinov2Config, transformers.Dinov2Model, {}),
        "dinov2_with_registers": (
            transformers.Dinov2WithRegistersConfig,
            transformers.Dinov2WithRegistersModel,
            {"num_register_tokens": 4},
        ),
        "dinov3_vit": (transformers.DINOv3ViTConfig, transformers.DINOv3ViTModel, {"num_register_tokens": 4}),
    }
    config, model, extra_fields = kinds[kind]
    model(config(**VISION, **extra_fields)).save_pretrained(folder)
    return folder


def save_sentence_encoder(folder: Path, kind: str = "bert") -> Path:
    kinds = {
        "bert": (transformers.BertConfig, transformers.BertModel),
        "xlm-roberta": (transformers.XLMRobertaConfig, transformers.XLMRobertaModel),
        "mpnet": (transformers.MPNetConfig, transformers.MPNetModel),
    }
    config, model = kinds[kind]
    model(config(**TEXT)).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


@pytest.fixture(autouse=True)
def random_weights() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("make", [save_clip, save_siglip])
def test_image_and_text_encoder_from_one_folder(tmp_path, make):
    folder = make(tmp_path)
    encoder = make_encoder(f"transformers:{folder}", (1, 1), trainable=False).eval()
    reference = transformers.AutoModel.from_pretrained(folder, local_files_only=True).eval()
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        expected_maps = reference.vision_model(pixel_values=images).last_hidden_state[:, -16:]
        torch.testing.assert_close(encoder.encode_image(images).flatten(2).transpose(1, 2), expected_maps)
        ids = encoder.tokenize(SENTENCES)
        vectors = reference.get_text_features(input_ids=ids)
        vectors = vectors if isinstance(vectors, torch.Tensor) else vectors.pooler_output
        torch.testing.assert_close(encoder.encode_tokens(ids), vectors)
    assert ids.shape == (3, 16) and ids[1].tolist() == [2, 4 + WORDS.index("lift"), 3, *[1] * 13]
    assert encoder.config.image_size == (32, 32) and encoder.feature_shape() == (32, 4, 4)
    assert encoder.config.mean[0] == (0.4 if make is save_clip else 0.5)


@pytest.mark.parametrize("kind", ["dinov2", "dinov2_with_registers", "dinov3_vit"])
@pytest.mark.parametrize("text_type", ["bert", "xlm-roberta", "mpnet"])
def test_image_and_sentence_encoder_from_two_folders(tmp_path, kind, text_type):
    (tmp_path / "vision").mkdir()
    (tmp_path / "text").mkdir()
    vision_folder, text_folder = (
        save_vision_model(tmp_path / "vision", kind),
        save_sentence_encoder(tmp_path / "text", text_type),
    )
    with pytest.raises(CheckpointError, match=r"vision: has no text encoder; name one: text_encoder="):
        make_encoder(f"transformers:{vision_folder}", (1, 1))
    encoder = make_encoder(f"transformers:{vision_folder}", (1, 1), text_encoder=f"transformers:{text_folder}").eval()
    images, model = torch.randn(2, 3, 32, 32), transformers.AutoModel.from_pretrained(vision_folder).eval()
    text_model = transformers.AutoModel.from_pretrained(text_folder).eval()
    with torch.no_grad():
        expected_maps = model(pixel_values=images).last_hidden_state[:, -16:]
        torch.testing.assert_close(encoder.encode_image(images).flatten(2).transpose(1, 2), expected_maps)
        short = torch.tensor([[2, 4 + WORDS.index("lift"), 3]])
        expected_vector = text_model(input_ids=short).last_hidden_state.mean(dim=1)
        torch.testing.assert_close(
            encoder.encode_tokens(encoder.tokenize(["lift"])), expected_vector, rtol=1e-4, atol=1e-5
        )


def test_model_is_trained_stored_and_reloaded(tmp_path):
    folder = save_clip(tmp_path)
    config = TrainConfig(
        encoder=f"transformers:{folder}",
        train_encoder=False,
        feature_cache_dir=tmp_path / "maps",
        steps=6,
        batch_size=4,
        frames_per_episode=4,
        augment=AugmentConfig(shift=0.0, color_jitter=0.0, brightness_jitter=0.0),
    )
    dataset = episodes(6)
    net = train(dataset, config, RunFolder.open(tmp_path / "run"), NullReporter())
    for path in folder.glob("*.safetensors"):
        path.unlink()  # a checkpoint needs nothing of where its towers came from
    stored = load_progress_net(tmp_path / "run" / CHECKPOINT_DIR)
    for one, other in zip(score_episodes(net, dataset), score_episodes(stored, dataset), strict=True):
        assert np.array_equal(one.progress, other.progress) and np.array_equal(one.success, other.success)
    with pytest.raises(UserError, match="cannot be exported to ONNX"):
        export_graphs(net)


def test_empty_sentence_gives_finite_vectors(tmp_path):
    (tmp_path / "vision").mkdir()
    (tmp_path / "text").mkdir()
    vision_folder, text_folder = (
        save_vision_model(tmp_path / "vision", "dinov2"),
        save_sentence_encoder(tmp_path / "text"),
    )
    tokenizer = write_tokenizer(text_folder)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
    tokenizer.save(str(text_folder / "tokenizer.json"))
    encoder = make_encoder(
        f"transformers:{vision_folder}", (1, 1), text_encoder=f"transformers:{text_folder}", trainable=False
    )
    assert encoder.eval().encode_text(["", "lift"]).isfinite().all()


def test_towers_are_trainable(tmp_path):
    encoder = make_encoder(f"transformers:{save_siglip(tmp_path)}", (1, 1), trainable=True)
    loss = encoder.encode_image(torch.randn(1, 3, 32, 32)).sum() + encoder.encode_text(["lift"]).sum()
    loss.backward()
    assert encoder.clip.visual.model.embeddings.patch_embedding.weight.grad is not None


def test_description_cannot_name_code_or_unknown_fields(tmp_path):
    folder = save_clip(tmp_path)
    description = json.loads((folder / "config.json").read_text())
    malicious = {
        "auto_map": {"AutoModel": "evil.Model"},
        "_attn_implementation_internal": "evil/kernel",
        "trust_remote_code": True,
    }
    description |= malicious
    description["vision_config"] |= {**malicious, "hidden_act": "gelu"}
    (folder / "config.json").write_text(json.dumps(description))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w')")
    encoder = make_encoder(f"transformers:{folder}", (1, 1))
    assert not set(malicious) & set(encoder.config.transformers["vision"])
    assert encoder.clip.visual.model.config.hidden_act == "gelu" and not (tmp_path / "canary").exists()


def remove_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def pickle_weights(folder: Path) -> None:
    remove_weights(folder)
    torch.save({}, folder / "pytorch_model.bin")


def replace_weights(folder: Path) -> None:
    torch.manual_seed(1)
    transformers.Dinov2Model(transformers.Dinov2Config(**VISION)).save_pretrained(folder / "x")
    (folder / "x" / "model.safetensors").rename(folder / "model.safetensors")


def update_config(folder: Path, **fields: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **fields}))


UNREADABLE = "the weights of its clip_vision_model cannot be read"
DAMAGES = {
    "no description": (lambda f: (f / "config.json").unlink(), "config.json: cannot be read"),
    "no JSON": (lambda f: (f / "config.json").write_text("{"), "config.json: not the description of a model"),
    "unknown": (lambda f: (f / "config.json").write_text('{"model_type": "clipp"}'), "Did you mean 'clip'"),
    "half": (lambda f: (f / "config.json").write_text('{"model_type": "clip"}'), "describes no clip_vision_model"),
    "no weights": (remove_weights, UNREADABLE),
    "pickled weights": (pickle_weights, UNREADABLE),
    "other weights": (replace_weights, "its weights are not those of clip_vision_model"),
    "torn weights": (
        lambda f: (f / "model.safetensors").write_bytes(b"x" * 100),
        r"model\.safetensors: weights are not readable",
    ),
    "senseless sizes": (
        lambda f: update_config(f, vision_config={**VISION, "hidden_size": "many"}),
        "clip_vision_model",
    ),
    "unknown function": (
        lambda f: update_config(f, vision_config={**VISION, "hidden_act": "gelu!"}),
        "clip_vision_model",
    ),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json: cannot be read"),
    "broken tokenizer": (lambda f: (f / "tokenizer.json").write_text("{}"), "tokenizer.json: not a tokenizer"),
    "broken pixels": (
        lambda f: (f / "preprocessor_config.json").write_text("["),
        "preprocessor_config.json: cannot be",
    ),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_folders_raise_and_name_the_folder(tmp_path, kind):
    damage, message = DAMAGES[kind]
    folder = save_clip(tmp_path)
    damage(folder)
    with pytest.raises(CheckpointError, match=message) as error_info:
        make_encoder(f"transformers:{folder}", (1, 1))
    error = str(error_info.value)
    assert "\n" not in error and (str(folder) in error or "describes no clip_vision_model" in error)


def test_text_encoder_needs_a_tower_of_transformers(tmp_path):
    with pytest.raises(UserError, match="goes with an encoder of timm or transformers, not with patch_tower_tiny"):
        make_encoder("patch_tower_tiny", (32, 32), text_encoder=f"transformers:{tmp_path}")
