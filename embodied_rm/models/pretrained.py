"""Large pretrained models as encoders, from a folder or a hub. Weights are read from safetensors only."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from embodied_rm.models.encoders import Encoder, EncoderConfig, build_clip, small_encoder  # isort: skip
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from open_clip.factory import load_checkpoint

from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.models.open_clip_config import check_open_clip_config
from embodied_rm.models.transformers_towers import READERS, TransformersTowers, load_towers, pixels_of

LOCAL, HUB, TRANSFORMERS = "local-dir:", "hf-hub:", "transformers:"
CONFIG = "open_clip_config.json"
WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors", "model.safetensors")
"""File names under which open_clip looks for weights; its pickled ones are never read."""

FROZEN_CELLS = (8, 8)
"""Cells that a frozen tower's map is pooled to, height and width: as many as a net looks at, few enough to keep."""


def make_encoder(
    tower: str,
    image_size: tuple[int, int],
    *,
    stage: int = -1,
    trained: bool = True,
    text_tower: str | None = None,
) -> Encoder:
    """An encoder by the name of its image tower.

    `local-dir:<folder>` and `hf-hub:<owner>/<name>` load a pretrained open_clip model, `transformers:<folder>` one of
    `transformers`; both bring their own image size. `text_tower`: `transformers:<folder>` with what reads instructions,
    where a model of `transformers` shall not read, or cannot. Any other name is that of a timm tower, started from
    random weights at `image_size` (height, width). Raises `CheckpointError` for a model that cannot be loaded,
    `UserError` for an unknown name.
    """
    pooled = None if trained else FROZEN_CELLS
    if text_tower is not None and not (tower.startswith(TRANSFORMERS) and text_tower.startswith(TRANSFORMERS)):
        raise UserError(f"text_tower goes with tower={TRANSFORMERS}<folder> and is one too, got {text_tower}, {tower}")
    if tower.startswith(TRANSFORMERS):
        reader = None if text_tower is None else Path(text_tower.removeprefix(TRANSFORMERS))
        config, clip = load_transformers(Path(tower.removeprefix(TRANSFORMERS)), reader)
        return Encoder(replace(config, stage=stage, trained=trained, pooled=pooled), clip)
    if tower.startswith((LOCAL, HUB)):
        config, clip = load_clip(tower)
        return Encoder(replace(config, stage=stage, trained=trained, pooled=pooled), clip)
    return Encoder(replace(small_encoder(tower, image_size, stage), trained=trained, pooled=pooled))


def load_transformers(eye: Path, reader: Path | None = None) -> tuple[EncoderConfig, TransformersTowers]:
    """The encoders of `transformers` in a folder, or the eye in one and what reads in another; see `load_towers`."""
    description, towers = load_towers(eye, reader)
    kind = description["vision"]["model_type"]
    size, (mean, std) = towers.visual.model.config.image_size, pixels_of(eye, kind)
    told = towers.reader.config
    config = EncoderConfig(
        open_clip={"embed_dim": getattr(told, READERS[description["text"]["model_type"]].size)},
        transformers=description,
        image_size=(size, size) if isinstance(size, int) else (size[0], size[1]),
        mean=mean,
        std=std,
    )
    return config, towers


def load_clip(source: str) -> tuple[EncoderConfig, Any]:
    """The whole open_clip model at `source`, `local-dir:<folder>` or `hf-hub:<owner>/<name>`, with its weights.

    Raises `CheckpointError` naming the folder and its fault.
    """
    folder = Path(source.removeprefix(LOCAL)) if source.startswith(LOCAL) else _download(source.removeprefix(HUB))
    config = _read_config(folder)
    weights = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if weights is None:
        raise CheckpointError(f"{folder}: holds none of {', '.join(WEIGHTS)}; pickled weights are not read")
    try:
        clip = build_clip(config)
        load_checkpoint(clip, str(weights))
    except (RuntimeError, ValueError, TypeError, AssertionError, OSError) as fault:
        # What open_clip and timm raise for a description or weights that do not fit: they have no errors of their own.
        reason = str(fault).strip().splitlines()[0]
        raise CheckpointError(f"{weights}: does not hold the model that {CONFIG} describes ({reason})") from None
    return config, clip


def _read_config(folder: Path) -> EncoderConfig:
    path = folder / CONFIG
    try:
        content = json.loads(path.read_text())
        model, pictures = content["model_cfg"], content.get("preprocess_cfg", {})
        # Weights come from the folder, whatever the description says.
        model = {**model, "vision_cfg": {**model["vision_cfg"], "timm_model_pretrained": False}}
        check_open_clip_config(model)
        size = model["vision_cfg"].get("image_size", 224)
        return EncoderConfig(
            open_clip=model,
            image_size=(size, size) if isinstance(size, int) else (size[0], size[1]),
            mean=tuple(pictures.get("mean", (0.48145466, 0.4578275, 0.40821073))),
            std=tuple(pictures.get("std", (0.26862954, 0.26130258, 0.27577711))),
        )
    except OSError as fault:
        raise CheckpointError(f"{path}: cannot be read ({fault.strerror})") from None
    except UserError as fault:
        raise CheckpointError(f"{path}: {fault}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        raise CheckpointError(f"{path}: not the description of an open_clip model ({fault!r})") from None


def _download(name: str) -> Path:
    try:
        return Path(snapshot_download(name, allow_patterns=[CONFIG, *WEIGHTS]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as fault:
        raise CheckpointError(f"{HUB}{name}: cannot be downloaded ({str(fault).strip().splitlines()[0]})") from None
