"""Tiny versions of the baselines that are read in the layouts of their releases, without an answer in text.

Names are written here again, independent of the package (docs/released_models.md).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import open_clip
import tiny_vlm
import torch
import torchvision
import transformers
from safetensors.torch import save_file
from torch import Tensor, nn

from embodied_rm.models.released.sarm_net import SarmConfig, SarmNet

STATEMENT = (
    "The above video shows a robot manipulation trajectory that completes the following task: open the drawer "
    "Decide whether the above statement is True or not. The answer is: True"
)


def topreward(folder: Path) -> dict[str, Path]:
    """Write a Qwen3-VL; TOPReward has no weights of its own."""
    return {"folder": tiny_vlm.save_model(folder, "qwen3_vl")}


def fill_weights(model: Any) -> None:
    """Give a model weights that are the same with every version of torch."""
    with torch.no_grad():
        tensors = {name: tensor for name, tensor in model.state_dict().items() if tensor.is_floating_point()}
        for number, (name, tensor) in enumerate(sorted(tensors.items())):
            wave = torch.sin(0.7 * torch.arange(tensor.numel(), dtype=torch.float64) ** 1.1 + number)
            is_scale = tensor.ndim == 1 and name.endswith(("weight", "running_var"))
            scale = 0.1 if tensor.ndim < 2 else 2 * tensor[0].numel() ** -0.5
            offset = 1.0 if is_scale else 0.0
            tensor.copy_((offset + scale * wave).view(tensor.shape))


def r3m(folder: Path, size: int = 18) -> dict[str, Path]:
    """Write an R3M with its language head, which is ignored."""
    net = make_resnet(size, None)
    head = {"module.lang_rew.pred.0.weight": torch.randn(4, 4), "module.lang_enc.model.weight": torch.randn(4)}
    save(folder, "r3m", {**add_prefix("module.convnet.", net), **head})
    return {"folder": folder}


def vip(folder: Path, size: int = 18) -> dict[str, Path]:
    """Write a VIP; the released one is a ResNet-50 with 1024 outputs."""
    save(folder, "vip", add_prefix("module.convnet.", make_resnet(size, 8)))
    return {"folder": folder}


def liv(folder: Path) -> dict[str, Path]:
    """Write a LIV over a CLIP with a small ResNet, which takes images of 64 pixels."""
    save(folder, "liv", add_prefix("module.model.", make_clip()))
    return {"folder": folder}


def sarm(folder: Path) -> dict[str, Path]:
    """Write a SARM of three stages, and a CLIP."""
    net = SarmNet(SarmConfig(**{name: SARM_SETTINGS[name] for name in SarmConfig.__dataclass_fields__}))
    fill_weights(net)
    released = folder / "released"
    released.mkdir(parents=True)
    (released / "config.json").write_text(json.dumps({"type": "sarm", **SARM_SETTINGS}))
    save_file(net.state_dict(), released / "model.safetensors")
    return {"folder": released, "base_model": write_clip(folder / "clip")}


SARM_SETTINGS = {
    "annotation_mode": "dual", "num_sparse_stages": 3, "sparse_subtask_names": ["reach", "grasp", "lift"],
    "sparse_temporal_proportions": [0.2, 0.5, 0.3], "num_dense_stages": 4, "dense_subtask_names": ["a", "b", "c", "d"],
    "dense_temporal_proportions": [0.25] * 4, "image_dim": 16, "text_dim": 16, "hidden_dim": 24, "num_heads": 2,
    "num_layers": 2, "max_state_dim": 6, "frame_gap": 3, "n_obs_steps": 4, "max_rewind_steps": 2,
    "image_key": "observation.images.front", "device": "cpu",
}  # fmt: skip
"""Arguments of LeRobot's `SARMConfig`."""


def write_clip(folder: Path) -> Path:
    """Write a CLIP of `transformers` with 16 dimensions, and its processor; its tokens are letters."""
    letters = [chr(code) for code in range(97, 123)]
    vocab = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    ids = {token: number for number, token in enumerate(vocab)}
    small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    ends = {"bos_token_id": ids["<|startoftext|>"], "eos_token_id": ids["<|endoftext|>"], "pad_token_id": 0}
    config = transformers.CLIPConfig(
        text_config={**small, **ends, "vocab_size": len(ids)},
        vision_config={**small, "image_size": 32, "patch_size": 8},
        projection_dim=16,
    )
    model = transformers.CLIPModel(config)
    fill_weights(model)
    model.save_pretrained(folder)
    images = transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    transformers.CLIPProcessor(images, transformers.CLIPTokenizer(vocab=ids, merges=[])).save_pretrained(folder)
    return folder


def make_resnet(size: int, outputs: int | None) -> nn.Module:
    """Create a ResNet without a last layer, or with one of some outputs."""
    torch.manual_seed(0)
    net: Any = getattr(torchvision.models, f"resnet{size}")(weights=None)
    net.fc = nn.Identity() if outputs is None else nn.Linear(net.fc.in_features, outputs)
    return net.eval()


def make_clip() -> nn.Module:
    """Create a CLIP of OpenAI's architecture."""
    vision = open_clip.CLIPVisionCfg(layers=(1, 1, 1, 1), width=4, image_size=64)
    text = open_clip.CLIPTextCfg(context_length=77, vocab_size=49408, width=64, heads=1, layers=1)
    clip = open_clip.CLIP(16, vision, text, quick_gelu=True)
    fill_weights(clip)
    return clip


def add_prefix(prefix: str, net: nn.Module) -> dict[str, Tensor]:
    """Return the weights of a network with a prefix before their names."""
    return {f"{prefix}{name}": tensor for name, tensor in net.state_dict().items()}


def save(folder: Path, key: str, state_dict: dict[str, Tensor]) -> None:
    """Write model.pt as the authors' training does: the state dict under a key, with the step."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.save({key: state_dict, "global_step": 100}, folder / "model.pt")


BASELINE_LAYOUTS = {"topreward": topreward, "sarm": sarm, "liv": liv}
NO_SUCCESS = frozenset(BASELINE_LAYOUTS)
"""Models without an output for success."""
