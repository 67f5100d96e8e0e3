"""Load large pretrained encoders from a folder or a hub. Weights are read from safetensors only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from open_clip.factory import load_checkpoint

from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.models.clip_builder import build_clip
from embodied_rm.models.encoders import EncoderConfig
from embodied_rm.models.open_clip_config import HUB_PREFIX, LOCAL_PREFIX, check_open_clip_config
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
    folder = (
        Path(source.removeprefix(LOCAL_PREFIX))
        if source.startswith(LOCAL_PREFIX)
        else download_model(source.removeprefix(HUB_PREFIX), (CONFIG_FILE, *WEIGHT_FILES))
    )
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
    try:
        content = json.loads(path.read_text())
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
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from None
    except UserError as error:
        raise CheckpointError(f"{path}: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: not the description of an open_clip model ({error!r})") from None


def download_model(repository: str, patterns: Sequence[str]) -> Path:
    """Download a model from the Hugging Face Hub, or find it in the cache.

    Args:
        repository: "owner/name".
        patterns: Files of the repository that are downloaded.

    Returns:
        The local folder.

    Raises:
        CheckpointError: When there is no such repository, or no network.
    """
    try:
        return Path(snapshot_download(repository, allow_patterns=list(patterns)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(f"{repository}: cannot be downloaded from the Hugging Face Hub ({reason})") from None
