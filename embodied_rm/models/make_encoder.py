"""Make an encoder by name; the libraries of pretrained models are imported when one is asked for."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from embodied_rm.errors import UserError
from embodied_rm.models.encoders import Encoder, EncoderConfig, small_encoder_config
from embodied_rm.models.open_clip_config import HUB_PREFIX, LOCAL_PREFIX

TRANSFORMERS_PREFIX = "transformers:"
FROZEN_POOL_SIZE = (8, 8)
"""Height and width, in cells, that a frozen tower's map is pooled to: the grid of a net, and small enough to cache."""


def make_encoder(
    tower: str, image_size: tuple[int, int], *, trainable: bool = True, text_tower: str | None = None
) -> Encoder:
    """Make an encoder by the name of its image tower.

    Args:
        tower: `local-dir:<folder>` or `hf-hub:<owner>/<name>` for a pretrained open_clip model, `transformers:<folder>`
            for one of `transformers`, else the name of a tower that starts from random weights.
        image_size: Height and width in pixels; pretrained models have their own.
        trainable: Whether training updates the towers.
        text_tower: `transformers:<folder>` with the text encoder, for an image tower of `transformers` without one.

    Raises:
        CheckpointError: If a model cannot be loaded.
        UserError: For an unknown tower.
    """
    pool_size = None if trainable else FROZEN_POOL_SIZE
    if text_tower is not None and not all(name.startswith(TRANSFORMERS_PREFIX) for name in (tower, text_tower)):
        raise UserError(f"text_tower and tower must both be {TRANSFORMERS_PREFIX}<folder>, got {text_tower}, {tower}")
    config: EncoderConfig
    clip: Any = None
    if tower.startswith(TRANSFORMERS_PREFIX):
        from embodied_rm.models.pretrained import load_transformers

        text_folder = None if text_tower is None else Path(text_tower.removeprefix(TRANSFORMERS_PREFIX))
        config, clip = load_transformers(Path(tower.removeprefix(TRANSFORMERS_PREFIX)), text_folder)
    elif tower.startswith((LOCAL_PREFIX, HUB_PREFIX)):
        from embodied_rm.models.pretrained import load_open_clip

        config, clip = load_open_clip(tower)
    else:
        config = small_encoder_config(tower, image_size)
    return Encoder(replace(config, trainable=trainable, pool_size=pool_size), clip)
