"""A trained net comes back exactly, or not at all."""

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


def test_it_comes_back_with_its_configuration_and_every_number(net, folder):
    again = load_progress_net(folder)
    assert again.config == net.config and not again.training
    rng = np.random.default_rng(0)
    views = [Views(names=("wrist",), frames=f) for f in rng.integers(0, 256, (3, 2, 1, 32, 48, 3), np.uint8)]
    results = []
    for model in (net, again):
        memory = model.reset(views[0], ["lift it", "drop it"])
        for shown in views[1:]:
            progress, memory = model.step(memory, shown)
        results.append(progress)
    np.testing.assert_array_equal(results[0].progress, results[1].progress)
    np.testing.assert_array_equal(results[0].success, results[1].success)


def test_a_flipped_bit_is_refused(folder):
    for path in (next(folder.glob("*.safetensors")), folder / MANIFEST_NAME):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 4
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=path.name):
            load_progress_net(folder)
        content[len(content) // 2] ^= 4
        path.write_bytes(content)
    load_progress_net(folder)


def rewritten(folder, change) -> None:
    """Store the checkpoint again, its own digests valid, with something changed."""
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
def test_what_does_not_fit_is_refused_in_one_sentence(folder, change, message):
    rewritten(folder, change)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_progress_net(folder)
    assert "\n" not in str(caught.value)


EVIL = """from pathlib import Path
Path("PWNED").touch()
from transformers import BertConfig as Config, BertModel as Model
"""


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A working folder with a model of `transformers` that brings code; nobody is asked, and no host can be reached."""
    monkeypatch.chdir(tmp_path)
    hub = tmp_path / "evil"
    hub.mkdir()
    (hub / "evil.py").write_text(EVIL)
    (hub / "config.json").write_text(
        json.dumps({"model_type": "evil", "auto_map": {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}})
    )

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a checkpoint asked a question, or for a host")

    monkeypatch.setattr("builtins.input", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return tmp_path


def text(**keys: object) -> Callable[[dict], None]:
    return lambda encoder: encoder["open_clip"]["text_cfg"].update(keys)


def vision(**keys: object) -> Callable[[dict], None]:
    return lambda encoder: encoder["open_clip"]["vision_cfg"].update(keys)


def towers(**keys: object) -> Callable[[dict], None]:
    """The description of towers of `transformers`, with such keys."""
    bert = {"model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 9}
    sight = {"model_type": "dinov2", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    described = {"vision": sight, "text": bert, "tokenizer_bytes": 1}
    return lambda encoder: encoder.update(transformers={**described, "text": {**bert, **keys}})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (text(hf_model_name="attacker/evil"), "text_cfg.hf_model_name needs a Hugging Face model"),
        (text(hf_model_name="evil"), "text_cfg.hf_model_name needs a Hugging Face model"),
        (text(hf_tokenizer_name="attacker/evil"), "text_cfg.hf_tokenizer_name needs"),
        (text(hf_model_pretrained=True), "unknown key of text_cfg 'hf_model_pretrained'"),
        (text(tokenizer_kwargs={"clean": "x"}), "unknown key of text_cfg 'tokenizer_kwargs'"),
        (text(width="64"), "text_cfg.width must be an integer, got '64'"),
        (text(act_kwargs={"approximate": ["tanh"]}), "text_cfg.act_kwargs must be numbers by name"),
        (vision(timm_model_pretrained=True), "timm_model_pretrained must be false"),
        (vision(timm_model_name="hf_hub:attacker/evil"), "unknown timm image tower"),
        (vision(timm_model_name=["hf_hub:attacker/evil"]), "timm_model_name must be text"),
        (vision(cache_dir="evil"), "unknown key of vision_cfg 'cache_dir'"),
        (lambda encoder: encoder["open_clip"].update(multimodal_cfg={}), "unknown key of model_cfg 'multimodal_cfg'"),
        (lambda encoder: encoder["open_clip"].update(vision_cfg="evil"), "vision_cfg must describe a tower"),
        (lambda encoder: encoder.update(pretrained="attacker/evil"), "pretrained"),
        (towers(auto_map={"AutoModel": "evil.Model"}), "auto_map=.* is no plain field of bert"),
        (towers(_attn_implementation="attacker/kernel"), "_attn_implementation=.* is no plain field of bert"),
        (towers(model_type="evil"), "unknown architecture 'evil'"),
        (towers(hidden_act={"name": "evil"}), "hidden_act=.* is no plain field of bert"),
    ],
)
def test_a_manifest_runs_nothing_asks_nothing_and_fetches_nothing(net, unreachable, change, reason) -> None:
    folder = unreachable / "checkpoint"
    save_progress_net(folder, net, {})
    rewritten(folder, lambda _, manifest: change(manifest["net"]["encoder"]))
    with pytest.raises(CheckpointError, match=reason) as caught:
        load_progress_net(folder)
    assert "\n" not in str(caught.value)
    assert not list(unreachable.rglob("PWNED"))


def test_nothing_there(tmp_path):
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_progress_net(tmp_path / "missing")
