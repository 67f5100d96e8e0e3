"""VLAC's logits against its architecture in plain tensor operations, on the released names of its weights.

Sources: `InternVLChatModel` of OpenGVLab and `InternLM2ForCausalLM` of its language model.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import conv2d, embedding, gelu, layer_norm, linear, silu

from embodied_rm.models.judges import released_prompts as prompts
from embodied_rm.models.judges.chat import Query
from embodied_rm.models.released.vlac import VlacChat, preprocess_image

Layout = Callable[[str], dict[str, Path]]
Weights = dict[str, Tensor]


def attend(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """Attention over [..., L, size]."""
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones(q.shape[-2], k.shape[-2]).triu(1).bool(), -torch.inf)
    return scores.softmax(-1) @ v


def see(w: Weights, config: dict[str, Any], pixels: Tensor) -> Tensor:
    """The embeddings of images [N, 3, H, W] for the language model, [N * tokens, width]."""
    width, heads, eps = config["hidden_size"], config["num_attention_heads"], config["layer_norm_eps"]
    base = "vision_model.embeddings"
    patch, bias = w[f"{base}.patch_embedding.weight"], w[f"{base}.patch_embedding.bias"]
    x = conv2d(pixels, patch, bias, stride=config["patch_size"]).flatten(2).transpose(1, 2)
    x = torch.cat([w[f"{base}.class_embedding"].expand(len(x), -1, -1), x], dim=1) + w[f"{base}.position_embedding"]
    for i in range(config["num_hidden_layers"]):
        p = {name.split(f"layers.{i}.")[1]: t for name, t in w.items() if f"vision_model.encoder.layers.{i}." in name}
        y = layer_norm(x, (width,), p["norm1.weight"], p["norm1.bias"], eps)
        qkv = linear(y, p["attn.qkv.weight"], p["attn.qkv.bias"]).unflatten(-1, (3, heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = attend(q, k, v, causal=False).transpose(1, 2).flatten(2)
        x = x + p["ls1"] * linear(y, p["attn.proj.weight"], p["attn.proj.bias"])
        y = layer_norm(x, (width,), p["norm2.weight"], p["norm2.bias"], eps)
        y = linear(gelu(linear(y, p["mlp.fc1.weight"], p["mlp.fc1.bias"])), p["mlp.fc2.weight"], p["mlp.fc2.bias"])
        x = x + p["ls2"] * y
    side = round((x.shape[1] - 1) ** 0.5)
    x = shuffle_pixels(x[:, 1:].unflatten(1, (side, side))).flatten(0, 2)
    x = layer_norm(x, (4 * width,), w["mlp1.0.weight"], w["mlp1.0.bias"])
    x = gelu(linear(x, w["mlp1.1.weight"], w["mlp1.1.bias"]))
    return linear(x, w["mlp1.3.weight"], w["mlp1.3.bias"])


def shuffle_pixels(x: Tensor) -> Tensor:
    """Join the channels of 2 x 2 patches, [N, W, H, C] -> [N, W / 2, H / 2, 4 C], in the order of version 2."""
    n, w, h, c = x.shape
    x = x.reshape(n, w, h // 2, 2 * c).permute(0, 2, 1, 3)
    return x.reshape(n, h // 2, w // 2, 4 * c).permute(0, 2, 1, 3)


def rotate(x: Tensor, theta: float) -> Tensor:
    """Rotary position embeddings of [heads, L, size], whose halves are a pair."""
    size = x.shape[-1]
    angles = torch.arange(x.shape[-2])[:, None] / theta ** (torch.arange(0, size, 2) / size)
    first, second = x.chunk(2, dim=-1)
    return torch.cat(
        [first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], dim=-1
    )


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return weight * x * (x.square().mean(-1, keepdim=True) + eps).rsqrt()


def read(w: Weights, config: dict[str, Any], x: Tensor) -> Tensor:
    """The logits [L, vocabulary] of embeddings [L, width]."""
    heads, groups, eps = config["num_attention_heads"], config["num_key_value_heads"], config["rms_norm_eps"]
    for i in range(config["num_hidden_layers"]):
        prefix = f"language_model.model.layers.{i}."
        p = {name.removeprefix(prefix): tensor for name, tensor in w.items() if name.startswith(prefix)}
        qkv = linear(norm(x, p["attention_norm.weight"], eps), p["attention.wqkv.weight"])
        qkv = qkv.unflatten(-1, (groups, heads // groups + 2, -1)).permute(1, 2, 0, 3)  # [groups, q.. k v, L, size]
        k, v = rotate(qkv[:, -2], config["rope_theta"]), qkv[:, -1]
        outputs = [
            attend(rotate(qkv[group, j][None], config["rope_theta"])[0], k[group], v[group], causal=True)
            for group in range(groups)
            for j in range(heads // groups)
        ]
        x = x + linear(torch.cat(outputs, dim=-1), p["attention.wo.weight"])
        y = norm(x, p["ffn_norm.weight"], eps)
        y = silu(linear(y, p["feed_forward.w1.weight"])) * linear(y, p["feed_forward.w3.weight"])
        x = x + linear(y, p["feed_forward.w2.weight"])
    return linear(norm(x, w["language_model.model.norm.weight"], eps), w["language_model.output.weight"])


@pytest.mark.parametrize("num_images", [1, 2])
def test_logits_equal_those_of_the_released_architecture(layout: Layout, num_images: int) -> None:
    folder = layout("vlac")["folder"]
    with torch.inference_mode():
        check_logits(folder, num_images)


def check_logits(folder: Path, num_images: int) -> None:
    """Assert that the logits of a query are those of the architecture that is written out above."""
    chat = VlacChat(folder)
    images = list(np.random.default_rng(num_images).integers(0, 255, (num_images, 40, 60, 3), np.uint8))
    query = Query(parts=(*images, "lift the cube"), system=prompts.VLAC_SYSTEM_PROMPT)
    ids = torch.tensor(chat.tokenizer.encode(chat.render_prompt(query)))
    pixels = torch.stack([preprocess_image(image, 56) for image in images])
    logits = chat.model(input_ids=ids[None], pixel_values=pixels).logits[0]

    w, config = load_file(folder / "model.safetensors"), json.loads((folder / "config.json").read_text())
    x = embedding(ids, w["language_model.model.tok_embeddings.weight"])
    x[ids == chat.tokenizer.special_tokens["<IMG_CONTEXT>"]] = see(w, config["vision_config"], pixels)
    expected = read(w, config["llm_config"], x)
    assert expected.abs().max() > 1
    assert (logits - expected).abs().max() <= 1e-5 * max(1.0, float(expected.abs().max()))
