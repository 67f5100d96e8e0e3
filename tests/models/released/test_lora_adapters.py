"""Adapters in the format of PEFT give the outputs of PEFT, one active adapter at a time."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_vlm
import torch
from released_layouts import make_adapter, make_messages
from safetensors.torch import load_file, save_file

from embodied_rm.errors import CheckpointError
from embodied_rm.models.judges.released_prompts import LRM_PROGRESS_PROMPT
from embodied_rm.models.released.lora_adapters import AdapterSwitcher, read_adapter

import transformers  # isort: skip

HEADS = ("completion", "progress")
"""One adapter of the language model only, and one with its own vision model."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_vlm.save_model(tmp_path_factory.mktemp("base"), "qwen3_vl")


@pytest.fixture(scope="module")
def released(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    for head in HEADS:
        make_adapter(base, head, 0.2).save_pretrained(folder / head)
    return folder


def logits(model: torch.nn.Module, base: Path) -> torch.Tensor:
    processor = transformers.AutoProcessor.from_pretrained(base)
    inputs = processor.apply_chat_template(
        [make_messages(LRM_PROGRESS_PROMPT)], tokenize=True, return_dict=True, return_tensors="pt"
    )
    with torch.inference_mode():
        return model(**inputs).logits


def test_outputs_equal_those_of_peft_and_of_the_base_model(base: Path, released: Path) -> None:
    model = transformers.Qwen3VLForConditionalGeneration.from_pretrained(base).eval()
    base_logits = logits(model, base)
    adapted = AdapterSwitcher(model, {head: read_adapter(released / head) for head in HEADS})
    for head in (*HEADS, *reversed(HEADS)):
        with adapted.use_adapter(head):
            adapted_logits = logits(model, base)
        peft_logits = logits(make_adapter(base, head, 0.2), base)
        assert (adapted_logits - base_logits).abs().max() > 0.01, "the adapter has an effect"
        assert torch.allclose(adapted_logits, peft_logits, atol=1e-5), head
    assert torch.equal(logits(model, base), base_logits), "the model is unchanged afterwards"


def copy_and_change(released: Path, folder: Path, change: Callable[[Path], None]) -> Path:
    shutil.copytree(released / "completion", folder, dirs_exist_ok=True)
    change(folder)
    return folder


def rewrite(key: str, value: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "adapter_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))

    return change


def zero_lora_b(folder: Path) -> None:
    tensors = load_file(folder / "adapter_model.safetensors")
    fresh = {name: torch.zeros_like(t) if "lora_B" in name else t for name, t in tensors.items()}
    save_file(fresh, folder / "adapter_model.safetensors")


def drop_lora_a(folder: Path) -> None:
    tensors = load_file(folder / "adapter_model.safetensors")
    name = next(name for name in tensors if "lora_A" in name)
    save_file({n: t for n, t in tensors.items() if n != name}, folder / "adapter_model.safetensors")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (rewrite("use_dora", True), "only plain LoRA is supported"),
        (rewrite("use_qalora", True), "only plain LoRA is supported"),
        (rewrite("init_lora_weights", "pissa"), "only plain LoRA is supported, this is LORA with {'init_lora_weights'"),
        (rewrite("init_lora_weights", "olora"), "only plain LoRA is supported"),
        (rewrite("target_parameters", ["mlp.experts"]), "only plain LoRA is supported"),
        (rewrite("alora_invocation_tokens", [1]), "only plain LoRA is supported"),
        (rewrite("peft_type", "IA3"), "this is IA3"),
        (rewrite("r", 0), "r and lora_alpha must be numbers"),
        (zero_lora_b, "every lora_B is zero"),
        (drop_lora_a, "has only one of two matrices"),
        (lambda folder: (folder / "adapter_model.safetensors").write_bytes(b"no"), "weights are not readable"),
        (lambda folder: (folder / "adapter_config.json").unlink(), "not the configuration of an adapter"),
    ],
)
def test_invalid_adapter_is_rejected(released: Path, tmp_path: Path, change, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_adapter(copy_and_change(released, tmp_path / "broken", change))


def test_adapter_of_another_model_is_rejected(released: Path) -> None:
    model, _ = tiny_vlm.make_qwen3(text_config={"hidden_size": 64}, vision_config={"out_hidden_size": 64})
    with pytest.raises(CheckpointError, match="the adapter completion is not for this model"):
        AdapterSwitcher(model, {"completion": read_adapter(released / "completion")})
