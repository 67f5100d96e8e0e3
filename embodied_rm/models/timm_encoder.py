"""Image encoders of timm with their own weights and preprocessing, by name, from a file or from a folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import timm
from torch import Tensor, nn

from embodied_rm.build_limit import limit_build
from embodied_rm.checkpoint_io import read_bytes
from embodied_rm.errors import CheckpointError, UserError, unknown_name_message
from embodied_rm.hub_download import download_repository
from embodied_rm.models.load_pretrained import checkpoint_errors, read_weights
from embodied_rm.models.pretrained_weights import (
    EFFICIENTNET_LITE,
    TIMM_PREFIX,
    PretrainedWeights,
    download_weights,
    find_weights,
    is_efficientnet_lite,
    tensors_sha256,
)
from embodied_rm.models.processor_limits import MAX_SIDE_PX
from embodied_rm.models.released.torch_pickle import read_torch_file

EFFICIENTNET_LITE_SIDES_PX = (224, 240, 260)  # of the images that each was trained on
TIMM_MODEL_TYPE = "timm"  # in descriptions of encoders, where `transformers` has its own types
WEIGHTS_FILE, CONFIG_FILE = "model.safetensors", "config.json"


@dataclass(frozen=True, kw_only=True)
class TimmDescription:
    """What a timm model is, and the images that it takes."""

    architecture: str  # timm's name, without the tag of the weights
    image_size: tuple[int, int]  # height and width in pixels
    mean: tuple[float, ...]  # of the pixels per color channel, for values in [0, 1]
    std: tuple[float, ...]


class TimmImageTower(nn.Module):
    """A timm model with the interface of an open_clip image tower."""

    def __init__(self, trunk: nn.Module) -> None:
        super().__init__()
        self.trunk: Any = trunk

    def forward_intermediates(self, images: Tensor, indices: list[int], **_: Any) -> dict[str, list[Tensor]]:
        """Return the feature maps [M, C, h, w] of normalized images [M, 3, H, W] at the levels `indices`."""
        maps = self.trunk.forward_intermediates(
            images, indices=indices, norm=True, stop_early=True, intermediates_only=True
        )
        return {"image_intermediates": maps}


def is_timm_name(name: str) -> bool:
    """Return whether `load_timm` loads an encoder of that name."""
    return is_efficientnet_lite(name) or name.startswith(TIMM_PREFIX)


def load_timm(name: str) -> tuple[TimmDescription, nn.Module]:
    """Load an image encoder in eval mode, with its weights.

    Args:
        name: "efficientnet_lite0" to "efficientnet_lite2"; or "timm:" and the name of a timm model, whose weights come
            from the hub, or the path of a safetensors file or of a folder as on the hub (config.json,
            model.safetensors).

    Returns:
        Its description, and the timm model without its classifier.

    Raises:
        CheckpointError: When the weights are absent, damaged, or those of another model.
        UserError: For an unknown name.
    """
    for weights, side in zip(EFFICIENTNET_LITE, EFFICIENTNET_LITE_SIDES_PX, strict=True):
        if name == weights.name:
            return _load_efficientnet_lite(weights, side)
    source = name.removeprefix(TIMM_PREFIX)
    path = Path(source)
    if not path.exists():
        check_architecture(source)
        folder = download_repository(
            f"timm/{_tagged_name(source)}", name, CheckpointError, allow_patterns=[WEIGHTS_FILE, CONFIG_FILE]
        )
        return _load_file(folder / WEIGHTS_FILE)
    return _load_file(path / WEIGHTS_FILE if path.is_dir() else path)


def check_architecture(name: str) -> None:
    """Raise `UserError` unless timm has a model of that name; names that would reach a network are none."""
    if not timm.is_model(name):
        names = timm.list_models(f"*{name.split('.')[0][:6]}*") or timm.list_models("tf_efficientnet_lite*")
        raise UserError(f"{unknown_name_message(name, names[:8], 'timm model')}, and all that timm.list_models() names")


def build_timm(architecture: str) -> nn.Module:
    """Build a timm model with random weights and without a classifier; `UserError` for an unknown one."""
    check_architecture(architecture)
    return timm.create_model(architecture, pretrained=False, num_classes=0)


def _tagged_name(name: str) -> str:
    """The name of a model with the tag of its default weights, as the hub has it."""
    default = timm.get_pretrained_cfg(name)
    return name if "." in name or default is None or not default.tag else f"{name}.{default.tag}"


def _load_efficientnet_lite(known: PretrainedWeights, side: int) -> tuple[TimmDescription, nn.Module]:
    architecture = f"tf_{known.name}"
    names = timm.create_model(architecture, pretrained=False).state_dict()
    path = find_weights(known)
    if path is not None:
        weights = dict(zip(names, read_torch_file(path).values(), strict=True))
    else:
        folder = download_weights(known)
        stored = read_weights([folder / WEIGHTS_FILE])
        weights = {name: stored[name] for name in names if name in stored}  # in the order of the digest
    if tensors_sha256(weights) != known.tensors_sha256:
        raise CheckpointError(f"{path or folder}: does not hold the weights of {known.name}")
    # TensorFlow's preprocessing of this family: (pixel - 127) / 128.
    description = TimmDescription(
        architecture=architecture, image_size=(side, side), mean=(127 / 255,) * 3, std=(128 / 255,) * 3
    )
    return description, _with_weights(architecture, weights, path or folder)


def _load_file(path: Path) -> tuple[TimmDescription, nn.Module]:
    """Load a model from safetensors; config.json beside the file, or else the file's name, says which."""
    if path.suffix != ".safetensors":
        raise CheckpointError(f"{path}: weights are read from safetensors only")
    if not path.is_file():
        raise CheckpointError(f"{path}: not found")
    description = _read_description(path)
    return description, _with_weights(description.architecture, read_weights([path]), path)


def _read_description(weights: Path) -> TimmDescription:
    path = weights.parent / CONFIG_FILE
    if not path.exists():
        name = weights.stem
        if not timm.is_model(name.split(".")[0]):
            raise CheckpointError(f"{weights}: no {CONFIG_FILE} beside it, and its name is not that of a timm model")
        default = timm.get_pretrained_cfg(name)
        architecture, stored = name.split(".")[0], {} if default is None else default.to_dict()
    else:
        content = read_bytes(path)
        with checkpoint_errors(f"{path}: not the description of a timm model"):
            parsed = json.loads(content)
            architecture, stored = parsed["architecture"], parsed.get("pretrained_cfg", {})
    with checkpoint_errors(f"{path}: not the preprocessing of a timm model"):
        check_architecture(str(architecture))
        _, height, width = stored.get("input_size", (3, 224, 224))
        if not 0 < max(height, width) <= MAX_SIDE_PX:
            raise CheckpointError(f"{path}: input_size is {height}x{width}, {MAX_SIDE_PX} px is the largest side")
        mean, std = stored.get("mean", (0.485, 0.456, 0.406)), stored.get("std", (0.229, 0.224, 0.225))
        return TimmDescription(
            architecture=str(architecture),
            image_size=(int(height), int(width)),
            mean=tuple(map(float, mean)),
            std=tuple(map(float, std)),
        )


def _with_weights(architecture: str, weights: dict[str, Tensor], path: Path) -> nn.Module:
    """Build the model with these weights; those of its classifier are not used."""
    with limit_build(weights, path):
        model = build_timm(architecture)
    names = set(model.state_dict())
    with checkpoint_errors(f"{path}: its weights are not those of {architecture}"):
        model.load_state_dict({name: tensor for name, tensor in weights.items() if name in names})
    return model.eval()
