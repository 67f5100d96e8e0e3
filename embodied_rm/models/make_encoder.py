"""Make an encoder by name; the libraries of pretrained models are imported when one is asked for."""

from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from embodied_rm.errors import UserError
from embodied_rm.models.encoders import Encoder, EncoderConfig, small_encoder_config
from embodied_rm.models.open_clip_config import HUB_PREFIX, LOCAL_PREFIX
from embodied_rm.models.pretrained_weights import MINILM, TIMM_PREFIX, TRANSFORMERS_PREFIX, is_efficientnet_lite

FROZEN_POOL_SIZE = (8, 8)
"""Height and width, in cells, that a frozen tower's map is pooled to: the grid of a net, and small enough to cache."""


def make_encoder(
    encoder: str,
    image_size: tuple[int, int],
    *,
    trainable: bool = True,
    text_encoder: str | None = None,
    text_trainable: bool | None = None,
) -> Encoder:
    """Make an encoder by the names of its image encoder and its text encoder.

    Args:
        encoder: A pretrained one: `efficientnet_lite0` to `efficientnet_lite2`; `timm:` and a name, file or folder;
            `transformers:<folder>`; `local-dir:<folder>` or `hf-hub:<owner>/<name>` of open_clip. Else the name of an
            image tower that starts from random weights.
        image_size: Height and width in pixels; pretrained models have their own.
        trainable: Whether training updates the image encoder.
        text_encoder: `minilm` or `transformers:<folder>`, for an image encoder of timm or `transformers`. None: that of
            the image encoder's folder, and `minilm` for one of timm.
        text_trainable: Whether training updates the text encoder. None: as the image encoder.

    Raises:
        CheckpointError: If a model cannot be loaded.
        UserError: For an unknown name.
    """
    pool_size = None if trainable else FROZEN_POOL_SIZE
    config: EncoderConfig
    clip: Any = None
    if is_paired(encoder):
        _require_transformers(encoder)
        from embodied_rm.models.pretrained import load_pair

        _check_text_encoder(text_encoder)
        config, clip = load_pair(encoder, text_encoder)
    elif text_encoder is not None:
        raise UserError(f"text_encoder={text_encoder} goes with an encoder of timm or transformers, not with {encoder}")
    elif encoder.startswith((LOCAL_PREFIX, HUB_PREFIX)):
        from embodied_rm.models.pretrained import load_open_clip

        config, clip = load_open_clip(encoder)
    else:
        config = small_encoder_config(encoder, image_size)
    config = replace(
        config,
        trainable=trainable,
        text_trainable=text_trainable,
        is_pretrained=has_own_image_size(encoder),
        pool_size=pool_size,
    )
    return Encoder(config, clip)


def has_own_image_size(encoder: str) -> bool:
    """Return whether an encoder is a pretrained one, whose weights fit images of one size."""
    return is_paired(encoder) or encoder.startswith((LOCAL_PREFIX, HUB_PREFIX))


def is_paired(encoder: str) -> bool:
    """Return whether an image encoder is joined with a text encoder of `transformers`."""
    return is_efficientnet_lite(encoder) or encoder.startswith((TIMM_PREFIX, TRANSFORMERS_PREFIX))


def _check_text_encoder(name: str | None) -> None:
    if name is not None and name != MINILM.name and not name.startswith(TRANSFORMERS_PREFIX):
        raise UserError(f"text_encoder must be {MINILM.name} or {TRANSFORMERS_PREFIX}<folder>, got {name}")


def _require_transformers(encoder: str) -> None:
    if find_spec("transformers") is None:
        raise UserError(f"encoder={encoder} needs transformers: pip install 'embodied-rm[pretrained]'")
