"""Validation of open_clip model descriptions: every key is known, and no key names a file or a hub.

A manifest or an `open_clip_config.json` is untrusted. open_clip would download the model that `hf_model_name` names,
and transformers would offer to run its code; neither receives a key that is not listed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from embodied_rm.errors import UserError, unknown_name_message

NUMBER_TYPE, INTEGER_TYPE, FLAG_TYPE, TEXT_TYPE = "a number", "an integer", "true or false", "text"
SIZE_TYPE, OPTIONS_TYPE = "an integer or a list of them", "numbers by name"
"""Types of values, as error messages name them."""

LOCAL_PREFIX, HUB_PREFIX = "local-dir:", "hf-hub:"
"""Prefixes of open_clip models in a folder and on the Hugging Face Hub."""

TRANSFORMER_KEYS = {
    "layers": SIZE_TYPE,
    "width": INTEGER_TYPE,
    "mlp_ratio": NUMBER_TYPE,
    "ls_init_value": NUMBER_TYPE,
    "final_ln_after_pool": FLAG_TYPE,
    "pool_type": TEXT_TYPE,
    "output_tokens": FLAG_TYPE,
    "act_kwargs": OPTIONS_TYPE,
    "norm_kwargs": OPTIONS_TYPE,
    "block_type": TEXT_TYPE,
    "qk_norm": FLAG_TYPE,
    "scaled_cosine_attn": FLAG_TYPE,
    "scale_heads": FLAG_TYPE,
    "scale_attn_inner": FLAG_TYPE,
    "scale_attn": FLAG_TYPE,
    "scale_fc": FLAG_TYPE,
}
"""Keys of a transformer, in both towers."""
VISION_KEYS = TRANSFORMER_KEYS | {
    "head_width": INTEGER_TYPE,
    "patch_size": SIZE_TYPE,
    "image_size": SIZE_TYPE,
    "patch_dropout": NUMBER_TYPE,
    "attentional_pool": FLAG_TYPE,
    "attn_pooler_queries": INTEGER_TYPE,
    "attn_pooler_heads": INTEGER_TYPE,
    "no_ln_pre": FLAG_TYPE,
    "pos_embed_type": TEXT_TYPE,
    "timm_model_name": TEXT_TYPE,
    "timm_model_pretrained": FLAG_TYPE,
    "timm_pool": TEXT_TYPE,
    "timm_proj": TEXT_TYPE,
    "timm_proj_bias": FLAG_TYPE,
    "timm_drop": NUMBER_TYPE,
    "timm_drop_path": NUMBER_TYPE,
}
TEXT_KEYS = TRANSFORMER_KEYS | {
    "context_length": INTEGER_TYPE,
    "vocab_size": INTEGER_TYPE,
    "heads": INTEGER_TYPE,
    "embed_cls": FLAG_TYPE,
    "pad_id": INTEGER_TYPE,
    "eos_id": INTEGER_TYPE,
    "no_causal_mask": FLAG_TYPE,
    "proj_bias": FLAG_TYPE,
    "proj_type": TEXT_TYPE,
}
MODEL_KEYS = {
    "embed_dim": INTEGER_TYPE,
    "quick_gelu": FLAG_TYPE,
    "custom_text": FLAG_TYPE,
    "init_logit_scale": NUMBER_TYPE,
    "init_logit_bias": NUMBER_TYPE,
    "nonscalar_logit_scale": FLAG_TYPE,
    "output_dict": FLAG_TYPE,
}
REMOTE_KEYS = ("hf_model_name", "hf_tokenizer_name")
"""Keys of open_clip for which it reads further files, from a folder or a hub."""


def check_open_clip_config(config: Mapping[str, Any]) -> None:
    """Check that open_clip's `model_cfg` (`embed_dim`, `vision_cfg`, `text_cfg`, `MODEL_KEYS`) has known keys only.

    `UserError` for an unknown key, a value of the wrong type, and any key that makes open_clip read further files.
    """
    schemas = {"vision_cfg": VISION_KEYS, "text_cfg": TEXT_KEYS}
    _check_keys("model_cfg", {key: value for key, value in config.items() if key not in schemas}, MODEL_KEYS)
    for part, schema in schemas.items():
        part_config = config.get(part)
        if not isinstance(part_config, Mapping):
            raise UserError(f"{part} must describe a tower, got {part_config!r}")
        _check_keys(part, part_config, schema)
    if config["vision_cfg"].get("timm_model_pretrained"):
        raise UserError("vision_cfg.timm_model_pretrained must be false: weights come with the checkpoint")


def _check_keys(part: str, config: Mapping[str, Any], schema: Mapping[str, str]) -> None:
    for key, value in config.items():
        if key in REMOTE_KEYS:
            if value:
                raise UserError(
                    f"{part}.{key} needs a Hugging Face model or tokenizer; only models with open_clip's own text "
                    "tower and tokenizer can be used"
                )
        elif key not in schema:
            raise UserError(unknown_name_message(str(key), schema, f"key of {part}"))
        elif value is not None and not _has_type(value, schema[key]):
            raise UserError(f"{part}.{key} must be {schema[key]}, got {value!r}")


def _has_type(value: Any, expected_type: str) -> bool:
    if expected_type == FLAG_TYPE:
        return isinstance(value, bool)
    if expected_type == TEXT_TYPE:
        return isinstance(value, str)
    if expected_type == SIZE_TYPE and isinstance(value, list | tuple):
        return all(_has_type(item, INTEGER_TYPE) for item in value)
    if expected_type == OPTIONS_TYPE:
        scalar_types = (int, float, str)  # gelu's `approximate` is a word
        return isinstance(value, Mapping) and all(isinstance(item, scalar_types) for item in value.values())
    return isinstance(value, int if expected_type in (INTEGER_TYPE, SIZE_TYPE) else int | float) and not isinstance(
        value, bool
    )
