"""LoRA fine-tunes of Robometer in the files of its authors' training give the outputs of PEFT's merged weights."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import numpy as np
import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from embodied_rm.errors import CheckpointError
from embodied_rm.models.judges.chat import Query
from embodied_rm.models.released.robometer import RobometerChat

Layout = Callable[[str], dict[str, Path]]
QUERY = Query(parts=("The task", *np.random.default_rng(0).integers(0, 255, (3, 32, 32, 3), np.uint8)))
TARGETS = ("language_model", "visual", "model")
"""The modules that their training adapts: the language model, the vision model, or, with unsloth, both."""
RANK, ALPHA = 4, 16


def save(tensors: dict[str, Tensor], path: Path) -> None:
    save_file({name: tensor.clone().contiguous() for name, tensor in tensors.items()}, path, {"format": "pt"})


def prefixed(model: torch.nn.Module) -> dict[str, Tensor]:
    return {f"model.{name}": tensor for name, tensor in model.state_dict().items()}


def released_tensors(layout: Layout) -> dict[str, Tensor]:
    paths = layout("robometer")["folder"].glob("*.safetensors")
    return {name: tensor for path in paths for name, tensor in load_file(path).items()}


def fine_tune(layout: Layout, folder: Path, target: str) -> Path:
    """Write a fine-tune as `_save_trainer_checkpoint_files` does, and its merged weights to the folder `merged`."""
    torch.manual_seed(0)
    base = layout("robometer")["folder"]
    model = transformers.Qwen3VLModel.from_pretrained(base)
    inner = model if target == "model" else getattr(model, target)
    names = [".*(q_proj|up_proj)", ".*attn.(qkv|proj)"]
    config = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="|".join(names), lora_dropout=0.05)
    adapted = peft.get_peft_model(inner, config).eval()
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter += 0.2 * torch.randn_like(parameter)
    heads = {name: t + 0.1 for name, t in released_tensors(layout).items() if "_head." in name or "frame_pool" in name}
    for name in ("tuned", "merged"):
        (folder / name).mkdir(parents=True)
        shutil.copy(base / "config.json", folder / name)
    root = adapted if target == "model" else model
    if target != "model":
        setattr(model, target, adapted)
    save(
        {**{f"model.{name}": t for name, t in root.state_dict().items()}, **heads},
        folder / "tuned" / "model.safetensors",
    )
    adapted.save_pretrained(folder / "tuned")
    save(heads, folder / "tuned" / "custom_heads.safetensors")
    (folder / "config.yaml").write_text(f"peft:\n  r: {RANK}\n  lora_alpha: {ALPHA}\nmodel:\n  use_peft: true\n")
    merged = adapted.merge_and_unload()
    if target == "model":
        model = merged
    else:
        setattr(model, target, merged)
    save(
        {**{f"model.{name}": t for name, t in model.state_dict().items()}, **heads},
        folder / "merged" / "model.safetensors",
    )
    return folder


def head_outputs(folder: Path, base_model: Path) -> dict[str, float]:
    (answer,) = RobometerChat(folder, base_model).ask([QUERY])
    assert answer.head_outputs is not None
    return dict(answer.head_outputs)


@pytest.mark.parametrize("target", TARGETS)
def test_a_fine_tune_gives_the_outputs_of_its_merged_weights(layout: Layout, tmp_path: Path, target: str) -> None:
    folders = layout("robometer")
    folder, base_model = fine_tune(layout, tmp_path / "run", target), folders["base_model"]
    expected = head_outputs(folder / "merged", base_model)
    assert head_outputs(folder / "tuned", base_model) == pytest.approx(expected, abs=1e-5), "the whole checkpoint"
    heads = load_file(folder / "tuned" / "custom_heads.safetensors")
    base = shutil.copytree(folders["folder"], tmp_path / "base")
    save({**released_tensors(layout), **heads}, base / "z.safetensors")
    assert abs(head_outputs(base, base_model)["progress"] - expected["progress"]) > 1e-4, "the adapter has an effect"

    snapshot = shutil.copytree(folder / "tuned", folder / "checkpoint-500")
    for name in ("adapter_config.json", "adapter_model.safetensors", "custom_heads.safetensors"):
        (snapshot / name).unlink()
    assert head_outputs(snapshot, base_model) == pytest.approx(expected, abs=1e-5), "the whole model alone"

    adapter = shutil.copytree(folder / "tuned", tmp_path / "adapter")
    for name in ("config.json", "model.safetensors"):
        (adapter / name).unlink()
    robometer = shutil.copytree(base_model, tmp_path / "robometer")
    shutil.copytree(folders["folder"], robometer, dirs_exist_ok=True)
    assert head_outputs(adapter, robometer) == pytest.approx(expected, abs=1e-5), "the adapter and heads alone"


def test_incomplete_fine_tunes_are_refused(layout: Layout, tmp_path: Path) -> None:
    folders = layout("robometer")
    folder = fine_tune(layout, tmp_path / "run", "language_model")
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (folder / "tuned" / name).unlink()
    (folder / "config.yaml").write_text("peft:\n  r: none\n  lora_alpha: 16\n")
    with pytest.raises(CheckpointError, match=r"r and lora_alpha must be numbers, r > 0, got 'none' and 16"):
        RobometerChat(folder / "tuned", folders["base_model"])
    (folder / "config.yaml").unlink()
    with pytest.raises(CheckpointError, match=r"without its scale, which is in adapter_config.json or config.yaml"):
        RobometerChat(folder / "tuned", folders["base_model"])
    tensors = load_file(folder / "tuned" / "model.safetensors")
    save(
        {name.replace("q_proj.base_layer", "query"): t for name, t in tensors.items()},
        folder / "tuned" / "model.safetensors",
    )
    with pytest.raises(
        CheckpointError, match=r"weights are missing, such as language_model.layers.0.self_attn.q_proj.wei"
    ):
        RobometerChat(folder / "tuned", folders["base_model"])
