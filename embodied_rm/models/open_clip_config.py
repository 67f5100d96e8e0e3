"""The closed description of an open_clip model: every key is known here, and none of them names a file or a hub.

A manifest or an `open_clip_config.json` comes from anybody. open_clip itself would fetch the model that `hf_model_name`
names, and transformers would offer to run code that comes with it; neither gets to see a key that is not listed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from embodied_rm.errors import UserError, choices

NUMBER, INTEGER, FLAG, TEXT = "a number", "an integer", "true or false", "text"
SIZE, OPTIONS = "an integer or a list of them", "numbers by name"
"""What a value may be, as the error says it."""

BLOCK = {
    "layers": SIZE,
    "width": INTEGER,
    "mlp_ratio": NUMBER,
    "ls_init_value": NUMBER,
    "final_ln_after_pool": FLAG,
    "pool_type": TEXT,
    "output_tokens": FLAG,
    "act_kwargs": OPTIONS,
    "norm_kwargs": OPTIONS,
    "block_type": TEXT,
    "qk_norm": FLAG,
    "scaled_cosine_attn": FLAG,
    "scale_heads": FLAG,
    "scale_attn_inner": FLAG,
    "scale_attn": FLAG,
    "scale_fc": FLAG,
}
"""Keys of a transformer, in both towers."""
VISION = BLOCK | {
    "head_width": INTEGER,
    "patch_size": SIZE,
    "image_size": SIZE,
    "patch_dropout": NUMBER,
    "attentional_pool": FLAG,
    "attn_pooler_queries": INTEGER,
    "attn_pooler_heads": INTEGER,
    "no_ln_pre": FLAG,
    "pos_embed_type": TEXT,
    "timm_model_name": TEXT,
    "timm_model_pretrained": FLAG,
    "timm_pool": TEXT,
    "timm_proj": TEXT,
    "timm_proj_bias": FLAG,
    "timm_drop": NUMBER,
    "timm_drop_path": NUMBER,
}
LANGUAGE = BLOCK | {
    "context_length": INTEGER,
    "vocab_size": INTEGER,
    "heads": INTEGER,
    "embed_cls": FLAG,
    "pad_id": INTEGER,
    "eos_id": INTEGER,
    "no_causal_mask": FLAG,
    "proj_bias": FLAG,
    "proj_type": TEXT,
}
MODEL = {
    "embed_dim": INTEGER,
    "quick_gelu": FLAG,
    "custom_text": FLAG,
    "init_logit_scale": NUMBER,
    "init_logit_bias": NUMBER,
    "nonscalar_logit_scale": FLAG,
    "output_dict": FLAG,
}
FETCHES = ("hf_model_name", "hf_tokenizer_name")
"""Keys of open_clip for which it reads further files, from a folder or a hub."""


def check_open_clip_config(config: Mapping[str, Any]) -> None:
    """Check that a description names nothing but an open_clip model whose every part is built here.

    Args:
        config: open_clip's `model_cfg`: `embed_dim`, `vision_cfg`, `text_cfg` and the options of `MODEL`.

    Raises:
        UserError: For a key that is not known, a value of another type, and whatever would read further files.
    """
    parts = {"vision_cfg": VISION, "text_cfg": LANGUAGE}
    _check("model_cfg", {key: value for key, value in config.items() if key not in parts}, MODEL)
    for part, known in parts.items():
        described = config.get(part)
        if not isinstance(described, Mapping):
            raise UserError(f"{part} must describe a tower, got {described!r}")
        _check(part, described, known)
    if config["vision_cfg"].get("timm_model_pretrained"):
        raise UserError("vision_cfg.timm_model_pretrained must be false: weights come with the checkpoint")


def _check(part: str, described: Mapping[str, Any], known: Mapping[str, str]) -> None:
    for key, value in described.items():
        if key in FETCHES:
            if value:
                raise UserError(
                    f"{part}.{key} needs a Hugging Face model or tokenizer; only models with open_clip's own text "
                    "tower and tokenizer can be used"
                )
        elif key not in known:
            raise UserError(choices(str(key), known, f"key of {part}"))
        elif value is not None and not _is(value, known[key]):
            raise UserError(f"{part}.{key} must be {known[key]}, got {value!r}")


def _is(value: Any, kind: str) -> bool:
    if kind == FLAG:
        return isinstance(value, bool)
    if kind == TEXT:
        return isinstance(value, str)
    if kind == SIZE and isinstance(value, list | tuple):
        return all(_is(item, INTEGER) for item in value)
    if kind == OPTIONS:
        plain = (int, float, str)  # gelu's `approximate` is a word
        return isinstance(value, Mapping) and all(isinstance(item, plain) for item in value.values())
    return isinstance(value, int if kind in (INTEGER, SIZE) else int | float) and not isinstance(value, bool)
