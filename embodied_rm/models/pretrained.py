"""Load large pretrained encoders from a folder or a hub. Weights are read from safetensors only."""

import json
from pathlib import Path
from typing import Any

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
from open_clip.factory import load_checkpoint

from embodied_rm.checkpoint_io import read_bytes
from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.hub_download import download_repository
from embodied_rm.models.encoders import EncoderConfig
from embodied_rm.models.open_clip_config import HUB_PREFIX, LOCAL_PREFIX, build_clip, check_open_clip_config
from embodied_rm.models.transformers_towers import TEXT_ARCHITECTURES, TransformersTowers, load_towers, pixel_statistics

CONFIG_FILE = "open_clip_config.json"
WEIGHT_FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors", "model.safetensors")
"""File names under which open_clip looks for weights; its pickled ones are never read."""


def load_transformers(vision_folder: Path, text_folder: Path | None = None) -> tuple[EncoderConfig, TransformersTowers]:
    """Load the encoders of `transformers` from one folder, or from one each; see `load_towers`."""
    description, towers = load_towers(vision_folder, text_folder)
    model_type = description["vision"]["model_type"]
    size, (mean, std) = towers.visual.model.config.image_size, pixel_statistics(vision_folder, model_type)
    text_config = towers.reader.config
    config = EncoderConfig(
        open_clip={"embed_dim": getattr(text_config, TEXT_ARCHITECTURES[description["text"]["model_type"]].dim_field)},
        transformers=description,
        image_size=(size, size) if isinstance(size, int) else (size[0], size[1]),
        mean=mean,
        std=std,
    )
    return config, towers


def load_open_clip(source: str) -> tuple[EncoderConfig, Any]:
    """Load the open_clip model at `source`, `local-dir:<folder>` or `hf-hub:<owner>/<name>`, with its weights.

    `CheckpointError` if it cannot be loaded; names the folder and the reason.
    """
    if source.startswith(LOCAL_PREFIX):
        folder = Path(source.removeprefix(LOCAL_PREFIX))
    else:
        name, patterns = source.removeprefix(HUB_PREFIX), [CONFIG_FILE, *WEIGHT_FILES]
        folder = download_repository(name, source, CheckpointError, allow_patterns=patterns)
    config = _read_config(folder)
    weights = next((folder / name for name in WEIGHT_FILES if (folder / name).is_file()), None)
    if weights is None:
        raise CheckpointError(f"{folder}: holds none of {', '.join(WEIGHT_FILES)}; pickled weights are not read")
    try:
        clip = build_clip(config.open_clip, config.transformers)
        load_checkpoint(clip, str(weights))
    except (RuntimeError, ValueError, TypeError, AssertionError, OSError) as error:
        # open_clip and timm have no exception classes of their own.
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(f"{weights}: does not hold the model that {CONFIG_FILE} describes ({reason})") from None
    return config, clip


def _read_config(folder: Path) -> EncoderConfig:
    path = folder / CONFIG_FILE
    stored = read_bytes(path)
    try:
        content = json.loads(stored)
        model, preprocess = content["model_cfg"], content.get("preprocess_cfg", {})
        # Weights come from the folder only.
        model = {**model, "vision_cfg": {**model["vision_cfg"], "timm_model_pretrained": False}}
        check_open_clip_config(model)
        size = model["vision_cfg"].get("image_size", 224)
        return EncoderConfig(
            open_clip=model,
            image_size=(size, size) if isinstance(size, int) else (size[0], size[1]),
            mean=tuple(preprocess.get("mean", (0.48145466, 0.4578275, 0.40821073))),
            std=tuple(preprocess.get("std", (0.26862954, 0.26130258, 0.27577711))),
        )
    except UserError as error:
        raise CheckpointError(f"{path}: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: not the description of an open_clip model ({error!r})") from None
