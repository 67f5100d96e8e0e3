"""InternVL 2 as it was released (`InternVLChatModel` over InternLM2) as the InternVL of `transformers` over a Llama.

The two are the same function under other names: InternLM2 keeps queries, keys and values of a group in one matrix,
and its eye all three in another. Nothing here runs the code that such folders bring along.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from embodied_rm.errors import CheckpointError
from embodied_rm.models.transformers_towers import FAULTS

EYE, READER = "model.vision_tower.encoder.layer", "model.language_model.layers"
LAYER, BLOCK = r"vision_model\.encoder\.layers\.", r"language_model\.model\.layers\."
NAMES = (
    (r"vision_model\.embeddings\.class_embedding", "model.vision_tower.embeddings.cls_token"),
    (r"vision_model\.embeddings\.position_embedding", "model.vision_tower.embeddings.position_embeddings"),
    (r"vision_model\.embeddings\.patch_embedding\.", "model.vision_tower.embeddings.patch_embeddings.projection."),
    (LAYER + r"(\d+)\.ls([12])", rf"{EYE}.\1.lambda_\2"),
    (LAYER + r"(\d+)\.attn\.proj\.", rf"{EYE}.\1.attention.projection_layer."),
    (LAYER + r"(\d+)\.norm1\.", rf"{EYE}.\1.layernorm_before."),
    (LAYER + r"(\d+)\.norm2\.", rf"{EYE}.\1.layernorm_after."),
    (LAYER + r"(\d+)\.mlp\.", rf"{EYE}.\1.mlp."),
    (r"mlp1\.0\.", "model.multi_modal_projector.layer_norm."),
    (r"mlp1\.1\.", "model.multi_modal_projector.linear_1."),
    (r"mlp1\.3\.", "model.multi_modal_projector.linear_2."),
    (r"language_model\.model\.tok_embeddings\.", "model.language_model.embed_tokens."),
    (BLOCK + r"(\d+)\.attention\.wo\.", rf"{READER}.\1.self_attn.o_proj."),
    (BLOCK + r"(\d+)\.feed_forward\.w1\.", rf"{READER}.\1.mlp.gate_proj."),
    (BLOCK + r"(\d+)\.feed_forward\.w3\.", rf"{READER}.\1.mlp.up_proj."),
    (BLOCK + r"(\d+)\.feed_forward\.w2\.", rf"{READER}.\1.mlp.down_proj."),
    (BLOCK + r"(\d+)\.attention_norm\.", rf"{READER}.\1.input_layernorm."),
    (BLOCK + r"(\d+)\.ffn_norm\.", rf"{READER}.\1.post_attention_layernorm."),
    (r"language_model\.model\.norm\.", "model.language_model.norm."),
    (r"language_model\.output\.", "lm_head."),
)  # fmt: skip
"""Released name -> the library's."""
EYE_PACKED = re.compile(LAYER + r"(\d+)\.attn\.qkv\.(weight|bias)")
READER_PACKED = re.compile(BLOCK + r"(\d+)\.attention\.wqkv\.weight")


def translated(tensors: Mapping[str, Tensor], heads: int, groups: int) -> dict[str, Tensor]:
    """Released weights under the library's names; `heads` of the language model, and its `groups` of keys.

    Raises `CheckpointError` for a name that is none of the layout.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if (eye := EYE_PACKED.fullmatch(name)) is not None:
            base = f"{EYE}.{eye[1]}.attention"
            parts = dict(zip(("q", "k", "v"), tensor.chunk(3), strict=True))
            found |= {f"{base}.{part}_proj.{eye[2]}": rows for part, rows in parts.items()}
        elif (reader := READER_PACKED.fullmatch(name)) is not None:
            base = f"{READER}.{reader[1]}.self_attn"
            found |= {f"{base}.{part}_proj.weight": rows for part, rows in unpacked(tensor, heads, groups).items()}
        else:
            found[_renamed(name)] = tensor
    return {name: tensor.contiguous() for name, tensor in found.items()}


def unpacked(packed: Tensor, heads: int, groups: int) -> dict[str, Tensor]:
    """Queries, keys and values [heads or groups * size, width] of a matrix that has them group by group: the queries of
    a group, its key, its value."""
    each = heads // groups + 2
    by_group = packed.unflatten(0, (groups, each, -1))
    parts = {"q": by_group[:, :-2], "k": by_group[:, -2], "v": by_group[:, -1]}
    return {part: rows.reshape(-1, packed.shape[1]) for part, rows in parts.items()}


def _renamed(name: str) -> str:
    for pattern, ours in NAMES:
        renamed, count = re.subn(rf"\A{pattern}", ours, name)
        if count:
            return renamed
    raise CheckpointError(f"{name} is no weight of an InternVL 2 over InternLM2")


def read_intern(folder: Path, image_token: int, dtype: torch.dtype, attention: str) -> nn.Module:
    """The model of a folder in the released layout. Raises `CheckpointError` naming the file and its fault."""
    path = folder / "config.json"
    try:
        described = json.loads(path.read_text())
        config = library_config(described, image_token)
        config._attn_implementation = attention
        language = described["llm_config"]
        tensors = translated(_tensors(folder), language["num_attention_heads"], language["num_key_value_heads"])
        model: nn.Module = transformers.InternVLForConditionalGeneration(config)
        model.to(dtype=dtype).load_state_dict(tensors)
    except (*FAULTS, ImportError) as fault:
        if isinstance(fault, CheckpointError):
            raise
        raise CheckpointError(f"{folder}: not an InternVL 2 as released ({fault!r})") from None
    return model


def _tensors(folder: Path) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            tensors |= load_file(path)
        except (OSError, SafetensorError) as fault:
            raise CheckpointError(f"{path}: not readable weights ({fault})") from None
    return tensors


def library_config(described: Mapping[str, Any], image_token: int) -> transformers.InternVLConfig:
    """What the library calls the parts of a released description."""
    eye, reader = described["vision_config"], described["llm_config"]
    if (kind := reader.get("architectures", ["?"])[0]) != "InternLM2ForCausalLM":
        raise CheckpointError(f"its language model is {kind}; only InternLM2ForCausalLM is read")
    if described.get("ps_version", "v2") != "v2" or described.get("select_layer", -1) != -1 or eye["qk_normalization"]:
        raise CheckpointError(
            "it is put together in a way (ps_version, select_layer, qk_normalization) that is not read"
        )
    size = described.get("force_image_size") or eye["image_size"]
    return transformers.InternVLConfig(
        vision_config={
            "hidden_size": eye["hidden_size"],
            "intermediate_size": eye["intermediate_size"],
            "num_hidden_layers": eye["num_hidden_layers"],
            "num_attention_heads": eye["num_attention_heads"],
            "attention_bias": eye["qkv_bias"],
            "hidden_act": eye["hidden_act"],
            "norm_type": eye["norm_type"],
            "layer_norm_eps": eye["layer_norm_eps"],
            "image_size": [size, size],
            "patch_size": [eye["patch_size"], eye["patch_size"]],
        },
        text_config={
            "model_type": "llama",
            "hidden_size": reader["hidden_size"],
            "intermediate_size": reader["intermediate_size"],
            "num_hidden_layers": reader["num_hidden_layers"],
            "num_attention_heads": reader["num_attention_heads"],
            "num_key_value_heads": reader["num_key_value_heads"],
            "vocab_size": reader["vocab_size"],
            "hidden_act": reader["hidden_act"],
            "rms_norm_eps": reader["rms_norm_eps"],
            "max_position_embeddings": reader["max_position_embeddings"],
            # Its stretching of positions begins behind max_position_embeddings, where nothing here comes.
            "rope_parameters": {"rope_type": "default", "rope_theta": float(reader["rope_theta"])},
        },
        image_token_id=image_token,
        image_seq_length=int((size // eye["patch_size"]) ** 2 * described["downsample_ratio"] ** 2),
        downsample_ratio=described["downsample_ratio"],
        tie_word_embeddings=False,
    )
