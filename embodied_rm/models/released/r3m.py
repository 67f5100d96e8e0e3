"""R3M (arXiv 2203.12601): a ResNet-18, -34 or -50 that was trained on videos of people."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
from PIL import Image
from torch import Tensor, nn

from embodied_rm.errors import CheckpointError
from embodied_rm.models.load_pretrained import load_weights
from embodied_rm.models.released.goal_distance import GoalEncoder, read_state_dict
from embodied_rm.models.released.vlac import IMAGE_MEAN, IMAGE_STD
from embodied_rm.types import Frames

RESIZE_PX, CROP_PX = 256, 224  # length of the shorter side, and side of the square in its center
WEIGHT_PREFIX = "module.convnet."  # the language head of R3M, which has other prefixes, is not used, as by its authors
RESNETS = {("basic", 2): "resnet18", ("basic", 6): "resnet34", ("bottleneck", 6): "resnet50"}
"""Kind of the blocks and their number in the third layer -> name in torchvision."""


class R3mEncoder(GoalEncoder):
    """R3M as released."""

    key = "r3m"  # key of the state dict in its file

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        """Load the .pt file, or model.pt in a folder; `CheckpointError` if it is not as released."""
        self.device = device
        self.net = load_resnet(folder, self.key).to(device).eval()

    def preprocess(self, frame: Frames) -> Tensor:
        """Return the center of an image as the authors' examples crop it, normalized."""
        return normalize_colors(crop_center(frame))

    def encode_images(self, pixels: Tensor) -> Tensor:
        """Return the embeddings [N, D] of pixels."""
        return self.net(pixels)


def crop_center(frame: Frames) -> Tensor:
    """Return the center of an image uint8 [H, W, 3] as float [3, CROP_PX, CROP_PX] in [0, 1]."""
    from torchvision.transforms import functional  # takes a second

    image = functional.resize(Image.fromarray(frame), RESIZE_PX)
    return functional.to_tensor(functional.center_crop(image, CROP_PX))


def normalize_colors(pixels: Tensor) -> Tensor:
    """Normalize colors float [3, H, W] in [0, 1] as for ImageNet."""
    from torchvision.transforms import functional

    return functional.normalize(pixels, list(IMAGE_MEAN), list(IMAGE_STD))


def load_resnet(folder: Path, key: str) -> nn.Module:
    """Load the ResNet of a released file; its last layer is the one stored, if any. `CheckpointError` if it fails."""
    import torchvision  # takes a second

    path, weights = read_state_dict(folder, key, WEIGHT_PREFIX)
    architecture = find_architecture(weights)
    if architecture is None:
        raise CheckpointError(f"{path}: its weights are not those of {', '.join(RESNETS.values())}")
    net: Any = getattr(torchvision.models, architecture)(weights=None)
    net.fc = nn.Identity()
    if "fc.weight" in weights:
        net.fc = nn.Linear(weights["fc.weight"].shape[1], weights["fc.weight"].shape[0])
    load_weights(net, weights, f"{path}: not the weights of a {architecture}")
    return net


def find_architecture(weights: Mapping[str, Tensor]) -> str | None:
    """Return the ResNet that has these weights; None for another network."""
    kind = "bottleneck" if "layer1.0.conv3.weight" in weights else "basic"
    return RESNETS.get((kind, len({name.split(".")[1] for name in weights if name.startswith("layer3.")})))
