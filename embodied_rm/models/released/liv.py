"""LIV (arXiv 2306.00958): a CLIP with a ResNet-50, whose goals are images or instructions."""

from pathlib import Path
from typing import Any

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import torch
from torch import Tensor
from torch.nn.functional import normalize

from embodied_rm.models.load_pretrained import checkpoint_errors
from embodied_rm.models.released.goal_distance import GoalEncoder, read_state_dict
from embodied_rm.models.tokens import tokenize
from embodied_rm.types import Frames

KEY, WEIGHT_PREFIX = "liv", "module.model."
IMAGE_MEAN, IMAGE_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


class LivEncoder(GoalEncoder):
    """LIV as released, in single precision."""

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        """Load the .pt file, or model.pt in a folder; `CheckpointError` if it is not as released."""
        self.device = device
        self.clip = load_clip(folder).to(device)

    def preprocess(self, frame: Frames) -> Tensor:
        """Return the center of an image as the authors' example crops it, normalized."""
        from torchvision.transforms import functional  # takes a second

        size = self.clip.visual.image_size
        # Without antialiasing, as in the version of the library that the authors used.
        image = functional.resize(functional.to_tensor(frame.copy()), size, antialias=False)
        return functional.normalize(functional.center_crop(image, size), list(IMAGE_MEAN), list(IMAGE_STD))

    def encode_images(self, pixels: Tensor) -> Tensor:
        """Return the embeddings [N, D] of pixels."""
        return self.clip.encode_image(pixels)

    def encode_text(self, text: str) -> Tensor:
        """Return the embedding [D] of an instruction."""
        ids = tokenize([text], self.clip.context_length, self.clip.vocab_size)
        return self.clip.encode_text(ids.to(self.device))[0]

    def distance(self, embeddings: Tensor, goal: Tensor) -> Tensor:
        """Return 1 minus the cosine similarity."""
        # Half the squared distance of the unit vectors: 1 - cos loses all digits where both are nearly equal.
        difference = normalize(embeddings, dim=-1) - normalize(goal, dim=-1)
        return difference.square().sum(dim=-1) / 2


def load_clip(folder: Path) -> Any:
    """Load the CLIP of a released file; `CheckpointError` if it cannot be loaded."""
    from open_clip.model import build_model_from_openai_state_dict  # takes seconds

    path, weights = read_state_dict(folder, KEY, WEIGHT_PREFIX)
    with checkpoint_errors(f"{path}: not the weights of a CLIP"):
        clip = build_model_from_openai_state_dict(weights, cast_dtype=torch.float32).float()
        clip.load_state_dict(weights)  # again, because the library rounds them to half precision
    return clip
