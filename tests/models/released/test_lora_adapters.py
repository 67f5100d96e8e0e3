"""Adapters as PEFT saves them: what comes out is what PEFT makes of them, and one at a time is in force."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_vlm
import torch
from released_layouts import adapter, shown
from safetensors.torch import load_file, save_file

from embodied_rm.errors import CheckpointError
from embodied_rm.models.judges.released_prompts import LRM_PROGRESS_PROMPT
from embodied_rm.models.released.lora_adapters import AdapterSwitcher, read_adapter

import transformers  # isort: skip

HEADS = ("completion", "progress")
"""One that is language only, and one with an eye of its own."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_vlm.save_model(tmp_path_factory.mktemp("base"), "qwen3_vl")


@pytest.fixture(scope="module")
def released(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    for head in HEADS:
        adapter(base, head, 0.2).save_pretrained(folder / head)
    return folder


def logits(model: torch.nn.Module, base: Path) -> torch.Tensor:
    processor = transformers.AutoProcessor.from_pretrained(base)
    given = processor.apply_chat_template(
        [shown(LRM_PROGRESS_PROMPT)], tokenize=True, return_dict=True, return_tensors="pt"
    )
    with torch.inference_mode():
        return model(**given).logits


def test_each_is_what_peft_makes_of_it_and_none_is_the_model_itself(base: Path, released: Path) -> None:
    model = transformers.Qwen3VLForConditionalGeneration.from_pretrained(base).eval()
    plain = logits(model, base)
    adapted = AdapterSwitcher(model, {head: read_adapter(released / head) for head in HEADS})
    for head in (*HEADS, *reversed(HEADS)):
        with adapted.use_adapter(head):
            ours = logits(model, base)
        theirs = logits(adapter(base, head, 0.2), base)
        assert (ours - plain).abs().max() > 0.01, "it changes something"
        assert torch.allclose(ours, theirs, atol=1e-5), head
    assert torch.equal(logits(model, base), plain), "afterwards it is as it was"


def changed(released: Path, folder: Path, change: Callable[[Path], None]) -> Path:
    shutil.copytree(released / "completion", folder, dirs_exist_ok=True)
    change(folder)
    return folder


def rewrite(key: str, value: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "adapter_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))

    return change


def zeroed(folder: Path) -> None:
    tensors = load_file(folder / "adapter_model.safetensors")
    fresh = {name: torch.zeros_like(t) if "lora_B" in name else t for name, t in tensors.items()}
    save_file(fresh, folder / "adapter_model.safetensors")


def torn(folder: Path) -> None:
    tensors = load_file(folder / "adapter_model.safetensors")
    name = next(name for name in tensors if "lora_A" in name)
    save_file({n: t for n, t in tensors.items() if n != name}, folder / "adapter_model.safetensors")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (rewrite("use_dora", True), "only plain LoRA is read"),
        (rewrite("peft_type", "IA3"), "this is IA3"),
        (rewrite("r", 0), "r and lora_alpha must be numbers"),
        (zeroed, "every lora_B is zero"),
        (torn, "has one of two matrices"),
        (lambda folder: (folder / "adapter_model.safetensors").write_bytes(b"no"), "not readable weights"),
        (lambda folder: (folder / "adapter_config.json").unlink(), "not the description of an adapter"),
    ],
)
def test_what_is_no_plain_adapter_is_refused(released: Path, tmp_path: Path, change, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_adapter(changed(released, tmp_path / "broken", change))


def test_an_adapter_of_another_model_is_refused(released: Path) -> None:
    model, _ = tiny_vlm.make_qwen3(text_config={"hidden_size": 64}, vision_config={"out_hidden_size": 64})
    with pytest.raises(CheckpointError, match="the adapter completion is not for this model"):
        AdapterSwitcher(model, {"completion": read_adapter(released / "completion")})
