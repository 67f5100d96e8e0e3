"""Load large pretrained encoders from a folder or a hub. Weights are read from safetensors only."""

from pathlib import Path
from typing import Any

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
from open_clip.factory import load_checkpoint

from embodied_rm.checkpoint_io import parse_json_object, read_bytes
from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.hub_download import download_repository
from embodied_rm.models.encoders import EncoderConfig
from embodied_rm.models.load_pretrained import checkpoint_errors, limit_weights
from embodied_rm.models.open_clip_config import HUB_PREFIX, LOCAL_PREFIX, build_clip, check_open_clip_config
from embodied_rm.models.pretrained_weights import MINILM, TRANSFORMERS_PREFIX, download_weights, find_weights
from embodied_rm.models.timm_encoder import TIMM_MODEL_TYPE, TimmImageTower, is_timm_name, load_timm
from embodied_rm.models.transformers_towers import (
    TEXT_ARCHITECTURES,
    LoadedEncoder,
    TransformersTowers,
    join_towers,
    load_text_encoder,
    load_vision_encoder,
    pixel_statistics,
)

CONFIG_FILE = "open_clip_config.json"
WEIGHT_FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors", "model.safetensors")
"""File names under which open_clip looks for weights; its pickled ones are never read."""


def load_pair(vision_name: str, text_name: str | None) -> tuple[EncoderConfig, TransformersTowers]:
    """Load an image encoder of timm or `transformers` and a text encoder of `transformers`.

    Args:
        vision_name: "efficientnet_lite0", "timm:<name, file or folder>" or "transformers:<folder>".
        text_name: "minilm" or "transformers:<folder>"; None: that of the vision folder, and minilm for one of timm.

    Raises:
        CheckpointError: When one of them cannot be loaded.
    """
    if is_timm_name(vision_name):
        timm_config, model = load_timm(vision_name)
        fields = {"model_type": TIMM_MODEL_TYPE, "architecture": timm_config.architecture}
        vision = LoadedEncoder(fields, TimmImageTower(model))
        image_size, mean, std = timm_config.image_size, timm_config.mean, timm_config.std
    else:
        folder = Path(vision_name.removeprefix(TRANSFORMERS_PREFIX))
        vision = load_vision_encoder(folder)
        size, (mean, std) = vision.model.model.config.image_size, pixel_statistics(folder, vision.fields["model_type"])
        image_size = (size, size) if isinstance(size, int) else (size[0], size[1])
    description, towers = join_towers(vision, load_text_encoder(_text_folder(vision_name, text_name)))
    dim_field = TEXT_ARCHITECTURES[description["text"]["model_type"]].dim_field
    config = EncoderConfig(
        open_clip={"embed_dim": getattr(towers.reader.config, dim_field)},
        transformers=description,
        image_size=image_size,
        mean=mean,
        std=std,
    )
    return config, towers


def _text_folder(vision_name: str, text_name: str | None) -> Path:
    if text_name is None and not is_timm_name(vision_name):
        return Path(vision_name.removeprefix(TRANSFORMERS_PREFIX))
    if text_name in (None, MINILM.name):
        path = find_weights(MINILM)
        return download_weights(MINILM) if path is None else path.parent
    return Path(text_name.removeprefix(TRANSFORMERS_PREFIX))


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
    with checkpoint_errors(f"{weights}: does not hold the model that {CONFIG_FILE} describes"):
        with limit_weights([weights], folder):
            clip = build_clip(config.open_clip, config.transformers)
        load_checkpoint(clip, str(weights))
    return config, clip


def _read_config(folder: Path) -> EncoderConfig:
    path = folder / CONFIG_FILE
    stored = read_bytes(path)
    try:
        content = parse_json_object(stored, path)
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
    except Exception as error:  # an invalid description raises an error of any class
        raise CheckpointError(f"{path}: not the description of an open_clip model ({error!r})") from None
