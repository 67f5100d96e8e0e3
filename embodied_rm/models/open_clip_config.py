"""Validation of open_clip model descriptions: every key is known, and no key names a file or a hub.

A manifest or an `open_clip_config.json` is untrusted. open_clip would download the model that `hf_model_name` names,
and transformers would offer to run its code; neither receives a key that is not listed here.
"""

import copy
import difflib
from collections.abc import Mapping
from typing import Any

from torch import nn

from embodied_rm.errors import UserError, unknown_name_message
from embodied_rm.models.small_clip import SmallClip, is_small_clip
from embodied_rm.models.towers import TOWERS
from embodied_rm.plugins import load_plugins

NUMBER_TYPE, INTEGER_TYPE, FLAG_TYPE, TEXT_TYPE = "a number", "an integer", "true or false", "text"
SIZE_TYPE, OPTIONS_TYPE = "an integer or a list of them", "numbers by name"
"""Types of values, as error messages name them."""

LOCAL_PREFIX, HUB_PREFIX = "local-dir:", "hf-hub:"
"""Prefixes of open_clip models in a folder and on the Hugging Face Hub."""


def _by_key(keys_of_type: Mapping[str, str]) -> dict[str, str]:
    """Return key -> type from type -> keys, separated by spaces."""
    return {key: value_type for value_type, keys in keys_of_type.items() for key in keys.split()}


TRANSFORMER_KEYS = {
    SIZE_TYPE: "layers",
    INTEGER_TYPE: "width",
    NUMBER_TYPE: "mlp_ratio ls_init_value",
    FLAG_TYPE: "final_ln_after_pool output_tokens qk_norm scaled_cosine_attn scale_heads scale_attn_inner scale_attn "
    "scale_fc",
    TEXT_TYPE: "pool_type block_type",
    OPTIONS_TYPE: "act_kwargs norm_kwargs",
}
VISION_KEYS = _by_key(TRANSFORMER_KEYS) | _by_key(
    {
        SIZE_TYPE: "patch_size image_size",
        INTEGER_TYPE: "head_width attn_pooler_queries attn_pooler_heads",
        NUMBER_TYPE: "patch_dropout timm_drop timm_drop_path",
        FLAG_TYPE: "attentional_pool no_ln_pre timm_model_pretrained timm_proj_bias",
        TEXT_TYPE: "pos_embed_type timm_model_name timm_pool timm_proj",
    }
)
TEXT_KEYS = _by_key(TRANSFORMER_KEYS) | _by_key(
    {
        INTEGER_TYPE: "context_length vocab_size heads pad_id eos_id",
        FLAG_TYPE: "embed_cls no_causal_mask proj_bias",
        TEXT_TYPE: "proj_type",
    }
)
MODEL_KEYS = _by_key(
    {
        INTEGER_TYPE: "embed_dim",
        FLAG_TYPE: "quick_gelu custom_text nonscalar_logit_scale output_dict",
        NUMBER_TYPE: "init_logit_scale init_logit_bias",
    }
)
"""Key -> type, for the parts of a description; the keys of a transformer (type -> keys) are in both towers."""
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
    number_type = int if expected_type in (INTEGER_TYPE, SIZE_TYPE) else int | float
    return isinstance(value, number_type) and not isinstance(value, bool)


def build_clip(open_clip: Mapping[str, Any], transformers: Mapping[str, Any] | None) -> Any:
    """Build a model with random weights from open_clip's `model_cfg`, or from a description for `TransformersTowers`.

    `UserError` for an unknown timm tower, and for any key that `check_open_clip_config` rejects: a description can make
    nothing be downloaded or run.
    """
    if transformers is not None:
        from embodied_rm.models.transformers_towers import TransformersTowers

        return TransformersTowers(transformers)
    check_open_clip_config(open_clip)
    load_plugins("embodied_rm.encoders")
    return SmallClip(open_clip) if is_small_clip(open_clip) else _build_open_clip(open_clip)


def _build_open_clip(config: Mapping[str, Any]) -> nn.Module:
    import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
    import timm
    from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg, CustomTextCLIP

    tower = config["vision_cfg"].get("timm_model_name")
    if tower and not timm.is_model(tower):
        names = difflib.get_close_matches(tower, [*timm.list_models(), *TOWERS], n=8, cutoff=0.4)
        raise UserError(
            unknown_name_message(tower, names, "timm image tower") + ", and whatever timm.list_models() names"
        )
    options = {key: value for key, value in config.items() if key != "custom_text"}
    model_class = CustomTextCLIP if config.get("custom_text") else CLIP
    options = copy.deepcopy(options)  # open_clip writes into the dicts it is given
    vision, text = CLIPVisionCfg(**options.pop("vision_cfg")), CLIPTextCfg(**options.pop("text_cfg"))
    return model_class(vision_cfg=vision, text_cfg=text, **options)
