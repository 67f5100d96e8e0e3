"""A tiny open_clip model with random weights, in the layout of a hub."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip (of which timm needs definitions)
import open_clip  # isort: skip

TEXT = {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1}
VISION = {"image_size": 32, "layers": 1, "width": 32, "patch_size": 8, "head_width": 16}


def save_tiny_clip(folder: Path) -> Path:
    """Write the model into a folder, and return it."""
    torch.manual_seed(3)
    model = open_clip.model.CLIP(embed_dim=24, vision_cfg=dict(VISION), text_cfg=dict(TEXT))
    metadata = {
        "model_cfg": {"embed_dim": 24, "vision_cfg": VISION, "text_cfg": TEXT},
        "preprocess_cfg": {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.25, 0.3]},
    }
    (folder / "open_clip_config.json").write_text(json.dumps(metadata))
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, folder / "open_clip_model.safetensors")
    return folder
