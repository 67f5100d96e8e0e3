"""Tiny versions of the baselines that are read in the layouts of their releases, without an answer in text.

Names are written here again, independent of the package (docs/released_models.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import open_clip
import tiny_vlm
import torch
import torchvision
from torch import Tensor, nn

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


BASELINE_LAYOUTS = {"topreward": topreward, "liv": liv}
NO_SUCCESS = frozenset(BASELINE_LAYOUTS)
"""Models without an output for success."""
