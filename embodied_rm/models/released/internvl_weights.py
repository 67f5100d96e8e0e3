"""Convert the released InternVL 2 (`InternVLChatModel` over InternLM2) to the InternVL of `transformers` over a Llama.

Both compute the same function with different weight names. InternLM2 stores queries, keys and values of a group in one
matrix; the vision model stores all three in one matrix. Code in the released folders is never executed.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import torch
import transformers
from torch import Tensor, nn

from embodied_rm.build_limit import limit_build
from embodied_rm.errors import CheckpointError
from embodied_rm.models.load_pretrained import checkpoint_errors, load_weights, read_weights
from embodied_rm.text_file import read_text

VISION_PREFIX, LANGUAGE_PREFIX = "model.vision_tower.encoder.layer", "model.language_model.layers"
VISION_LAYER_PATTERN, LANGUAGE_LAYER_PATTERN = r"vision_model\.encoder\.layers\.", r"language_model\.model\.layers\."
WEIGHT_RENAMES = (
    (r"vision_model\.embeddings\.class_embedding", "model.vision_tower.embeddings.cls_token"),
    (r"vision_model\.embeddings\.position_embedding", "model.vision_tower.embeddings.position_embeddings"),
    (r"vision_model\.embeddings\.patch_embedding\.", "model.vision_tower.embeddings.patch_embeddings.projection."),
    (VISION_LAYER_PATTERN + r"(\d+)\.ls([12])", rf"{VISION_PREFIX}.\1.lambda_\2"),
    (VISION_LAYER_PATTERN + r"(\d+)\.attn\.proj\.", rf"{VISION_PREFIX}.\1.attention.projection_layer."),
    (VISION_LAYER_PATTERN + r"(\d+)\.norm1\.", rf"{VISION_PREFIX}.\1.layernorm_before."),
    (VISION_LAYER_PATTERN + r"(\d+)\.norm2\.", rf"{VISION_PREFIX}.\1.layernorm_after."),
    (VISION_LAYER_PATTERN + r"(\d+)\.mlp\.", rf"{VISION_PREFIX}.\1.mlp."),
    (r"mlp1\.0\.", "model.multi_modal_projector.layer_norm."),
    (r"mlp1\.1\.", "model.multi_modal_projector.linear_1."),
    (r"mlp1\.3\.", "model.multi_modal_projector.linear_2."),
    (r"language_model\.model\.tok_embeddings\.", "model.language_model.embed_tokens."),
    (LANGUAGE_LAYER_PATTERN + r"(\d+)\.attention\.wo\.", rf"{LANGUAGE_PREFIX}.\1.self_attn.o_proj."),
    (LANGUAGE_LAYER_PATTERN + r"(\d+)\.feed_forward\.w1\.", rf"{LANGUAGE_PREFIX}.\1.mlp.gate_proj."),
    (LANGUAGE_LAYER_PATTERN + r"(\d+)\.feed_forward\.w3\.", rf"{LANGUAGE_PREFIX}.\1.mlp.up_proj."),
    (LANGUAGE_LAYER_PATTERN + r"(\d+)\.feed_forward\.w2\.", rf"{LANGUAGE_PREFIX}.\1.mlp.down_proj."),
    (LANGUAGE_LAYER_PATTERN + r"(\d+)\.attention_norm\.", rf"{LANGUAGE_PREFIX}.\1.input_layernorm."),
    (LANGUAGE_LAYER_PATTERN + r"(\d+)\.ffn_norm\.", rf"{LANGUAGE_PREFIX}.\1.post_attention_layernorm."),
    (r"language_model\.model\.norm\.", "model.language_model.norm."),
    (r"language_model\.output\.", "lm_head."),
)  # fmt: skip
"""Pattern of a released name -> name in `transformers`."""
VISION_QKV_PATTERN = re.compile(VISION_LAYER_PATTERN + r"(\d+)\.attn\.qkv\.(weight|bias)")
LANGUAGE_QKV_PATTERN = re.compile(LANGUAGE_LAYER_PATTERN + r"(\d+)\.attention\.wqkv\.weight")

LAYER_FIELDS = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "hidden_act")
VISION_FIELDS = (*LAYER_FIELDS, "norm_type", "layer_norm_eps")
LANGUAGE_FIELDS = (*LAYER_FIELDS, "num_key_value_heads", "vocab_size", "rms_norm_eps", "max_position_embeddings")
"""Fields of the configurations that have the same names in `transformers`."""


def convert_weights(tensors: Mapping[str, Tensor], num_heads: int, num_kv_heads: int) -> dict[str, Tensor]:
    """Rename released weights to the names of `transformers`; a name outside of the layout stays as it is."""
    converted: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if (vision_match := VISION_QKV_PATTERN.fullmatch(name)) is not None:
            base = f"{VISION_PREFIX}.{vision_match[1]}.attention"
            parts = dict(zip(("q", "k", "v"), tensor.chunk(3), strict=True))
            converted |= {f"{base}.{part}_proj.{vision_match[2]}": rows for part, rows in parts.items()}
        elif (language_match := LANGUAGE_QKV_PATTERN.fullmatch(name)) is not None:
            base = f"{LANGUAGE_PREFIX}.{language_match[1]}.self_attn"
            parts = split_qkv(tensor, num_heads, num_kv_heads)
            converted |= {f"{base}.{part}_proj.weight": rows for part, rows in parts.items()}
        else:
            converted[_rename_weight(name)] = tensor
    return {name: tensor.contiguous() for name, tensor in converted.items()}


def split_qkv(qkv: Tensor, num_heads: int, num_kv_heads: int) -> dict[str, Tensor]:
    """Split a matrix of the queries, key and value of each group into "q", "k" and "v", [heads * head size, width]."""
    group_size = num_heads // num_kv_heads + 2
    by_group = qkv.unflatten(0, (num_kv_heads, group_size, -1))
    parts = {"q": by_group[:, :-2], "k": by_group[:, -2], "v": by_group[:, -1]}
    return {part: rows.reshape(-1, qkv.shape[1]) for part, rows in parts.items()}


def _rename_weight(name: str) -> str:
    for pattern, replacement in WEIGHT_RENAMES:
        new_name, count = re.subn(rf"\A{pattern}", replacement, name)
        if count:
            return new_name
    return name


def load_internvl(folder: Path, image_token_id: int, dtype: torch.dtype, attn_implementation: str) -> nn.Module:
    """Load the model of a folder in the released layout; `CheckpointError` if it cannot be loaded."""
    with checkpoint_errors(f"{folder}: not an InternVL 2 as released"):
        released_config = json.loads(read_text(folder / "config.json"))
        config = convert_config(released_config, image_token_id)
        config._attn_implementation = attn_implementation
        llm_config, tensors = released_config["llm_config"], read_weights(sorted(folder.glob("*.safetensors")))
        num_heads, num_kv_heads = llm_config["num_attention_heads"], llm_config["num_key_value_heads"]
        with limit_build(tensors, folder):
            model: nn.Module = transformers.InternVLForConditionalGeneration(config)
        weights = convert_weights(tensors, num_heads, num_kv_heads)
    load_weights(model.to(dtype=dtype), weights, f"{folder}: not an InternVL 2 over InternLM2 (names of transformers)")
    return model


def convert_config(released_config: Mapping[str, Any], image_token_id: int) -> transformers.InternVLConfig:
    """Convert a released configuration to that of `transformers`."""
    vision, llm = released_config["vision_config"], released_config["llm_config"]
    if (architecture := llm.get("architectures", ["?"])[0]) != "InternLM2ForCausalLM":
        raise CheckpointError(f"its language model is {architecture}; only InternLM2ForCausalLM is supported")
    if (
        released_config.get("ps_version", "v2") != "v2"
        or released_config.get("select_layer", -1) != -1
        or vision["qk_normalization"]
    ):
        raise CheckpointError("its architecture (ps_version, select_layer or qk_normalization) is not supported")
    image_size, patch_size = released_config.get("force_image_size") or vision["image_size"], vision["patch_size"]
    downsample_ratio = released_config["downsample_ratio"]
    return transformers.InternVLConfig(
        vision_config={
            **{name: vision[name] for name in VISION_FIELDS},
            "attention_bias": vision["qkv_bias"],
            "image_size": [image_size, image_size],
            "patch_size": [patch_size, patch_size],
        },
        text_config={
            **{name: llm[name] for name in LANGUAGE_FIELDS},
            "model_type": "llama",
            # Its rope scaling applies beyond max_position_embeddings only, which no query here reaches.
            "rope_parameters": {"rope_type": "default", "rope_theta": float(llm["rope_theta"])},
        },
        image_token_id=image_token_id,
        image_seq_length=int((image_size // patch_size) ** 2 * downsample_ratio**2),
        downsample_ratio=downsample_ratio,
        tie_word_embeddings=False,
    )
