"""Checkpoints of `ProgressNet`: exact round trip, or an error."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from embodied_rm.checkpoint_io import MANIFEST_NAME, load_tensors, save_tensors
from embodied_rm.errors import CheckpointError
from embodied_rm.models.checkpoint import ARCHITECTURE, load_progress_net, save_progress_net
from embodied_rm.models.encoders import small_encoder_config
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.types import Views


@pytest.fixture
def net() -> ProgressNet:
    torch.manual_seed(0)
    encoder = small_encoder_config("mobilenetv3_small_050", (32, 48), feature_level=2)
    return ProgressNet(
        NetConfig(
            views=("front", "wrist"), encoder=encoder, width=32, num_layers=1, max_subtasks=5, fusion="consistent"
        )
    )


@pytest.fixture
def folder(net, tmp_path):
    save_progress_net(tmp_path / "net", net, {"data_sha256": "0" * 64})
    return tmp_path / "net"


def test_round_trip_preserves_config_and_predictions(net, folder):
    loaded = load_progress_net(folder)
    assert loaded.config == net.config and not loaded.training
    rng = np.random.default_rng(0)
    views = [Views(names=("wrist",), frames=f) for f in rng.integers(0, 256, (3, 2, 1, 32, 48, 3), np.uint8)]
    results = []
    for model in (net, loaded):
        state = model.reset(views[0], ["lift it", "drop it"])
        for frame in views[1:]:
            output, state = model.step(state, frame)
        results.append(output)
    np.testing.assert_array_equal(results[0].progress, results[1].progress)
    np.testing.assert_array_equal(results[0].success, results[1].success)


def test_flipped_bit_raises(folder):
    for path in (next(folder.glob("*.safetensors")), folder / MANIFEST_NAME):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 4
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=path.name):
            load_progress_net(folder)
        content[len(content) // 2] ^= 4
        path.write_bytes(content)
    load_progress_net(folder)


def rewrite(folder, change) -> None:
    """Store the changed checkpoint again, with valid digests."""
    tensors, manifest = load_tensors(folder, ARCHITECTURE)
    change(tensors, manifest)
    save_tensors(folder, tensors, json.loads(json.dumps(manifest)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, m: t.pop("heads._hop.mlp.0.weight"), "lacks tensors: heads._hop.mlp.0.weight"),
        (lambda t, m: t.update(extra=torch.zeros(1)), "unknown tensors: extra"),
        (lambda t, m: m.update(architecture="policy"), "'policy'"),
        (lambda t, m: m["net"].update(width=64), "needs"),
        (lambda t, m: m["net"].update(width="wide"), "describes no net"),
        (lambda t, m: m["net"].update(_target_="os.system"), "describes no net"),
        (lambda t, m: m["net"]["encoder"]["open_clip"]["vision_cfg"].update(timm_model_name="no"), "describes no net"),
        (lambda t, m: m.pop("net"), "describes no net"),
    ],
)
def test_invalid_content_raises_a_one_line_error(folder, change, message):
    rewrite(folder, change)
    with pytest.raises(CheckpointError, match=message) as error_info:
        load_progress_net(folder)
    assert "\n" not in str(error_info.value)


MALICIOUS_CODE = """from pathlib import Path
Path("PWNED").touch()
from transformers import BertConfig as Config, BertModel as Model
"""


@pytest.fixture
def offline_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A working folder with a model of `transformers` that brings code; prompts and connections fail."""
    monkeypatch.chdir(tmp_path)
    repo = tmp_path / "evil"
    repo.mkdir()
    (repo / "evil.py").write_text(MALICIOUS_CODE)
    (repo / "config.json").write_text(
        json.dumps({"model_type": "evil", "auto_map": {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}})
    )

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a checkpoint prompted the user or opened a connection")

    monkeypatch.setattr("builtins.input", fail)
    monkeypatch.setattr(socket.socket, "connect", fail)
    monkeypatch.setattr(socket, "getaddrinfo", fail)
    return tmp_path


def update_text(**keys: object) -> Callable[[dict], None]:
    return lambda encoder: encoder["open_clip"]["text_cfg"].update(keys)


def update_vision(**keys: object) -> Callable[[dict], None]:
    return lambda encoder: encoder["open_clip"]["vision_cfg"].update(keys)


def update_towers(**keys: object) -> Callable[[dict], None]:
    """Set the description of towers of `transformers`, with the given text fields."""
    bert = {"model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 9}
    vision = {"model_type": "dinov2", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    description = {"vision": vision, "text": bert, "tokenizer_bytes": 1}
    return lambda encoder: encoder.update(transformers={**description, "text": {**bert, **keys}})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (update_text(hf_model_name="attacker/evil"), "text_cfg.hf_model_name needs a Hugging Face model"),
        (update_text(hf_model_name="evil"), "text_cfg.hf_model_name needs a Hugging Face model"),
        (update_text(hf_tokenizer_name="attacker/evil"), "text_cfg.hf_tokenizer_name needs"),
        (update_text(hf_model_pretrained=True), "unknown key of text_cfg 'hf_model_pretrained'"),
        (update_text(tokenizer_kwargs={"clean": "x"}), "unknown key of text_cfg 'tokenizer_kwargs'"),
        (update_text(width="64"), "text_cfg.width must be an integer, got '64'"),
        (update_text(act_kwargs={"approximate": ["tanh"]}), "text_cfg.act_kwargs must be numbers by name"),
        (update_vision(timm_model_pretrained=True), "timm_model_pretrained must be false"),
        (update_vision(timm_model_name="hf_hub:attacker/evil"), "unknown timm image tower"),
        (update_vision(timm_model_name=["hf_hub:attacker/evil"]), "timm_model_name must be text"),
        (update_vision(cache_dir="evil"), "unknown key of vision_cfg 'cache_dir'"),
        (lambda encoder: encoder["open_clip"].update(multimodal_cfg={}), "unknown key of model_cfg 'multimodal_cfg'"),
        (lambda encoder: encoder["open_clip"].update(vision_cfg="evil"), "vision_cfg must describe a tower"),
        (lambda encoder: encoder.update(pretrained="attacker/evil"), "pretrained"),
        (update_towers(auto_map={"AutoModel": "evil.Model"}), "auto_map=.* is no plain field of bert"),
        (update_towers(_attn_implementation="attacker/kernel"), "_attn_implementation=.* is no plain field of bert"),
        (update_towers(model_type="evil"), "unknown architecture 'evil'"),
        (update_towers(hidden_act={"name": "evil"}), "hidden_act=.* is no plain field of bert"),
    ],
)
def test_malicious_manifest_runs_nothing_and_downloads_nothing(net, offline_folder, change, reason) -> None:
    folder = offline_folder / "checkpoint"
    save_progress_net(folder, net, {})
    rewrite(folder, lambda _, manifest: change(manifest["net"]["encoder"]))
    with pytest.raises(CheckpointError, match=reason) as error_info:
        load_progress_net(folder)
    assert "\n" not in str(error_info.value)
    assert not list(offline_folder.rglob("PWNED"))


def test_missing_folder_raises(tmp_path):
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_progress_net(tmp_path / "missing")
