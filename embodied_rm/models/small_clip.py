"""The small CLIP of this package: one of its own image towers and a transformer that encodes instructions.

Weights, names and numbers are those of open_clip's `CLIP` with such towers, bit for bit;
tests/models/test_small_clip.py compares the two. It needs torch alone, so that the bundled reward model loads without
open_clip, timm and torchvision, which take longer to import than the model takes to load.
"""

import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from embodied_rm.models.towers import TOWERS, Tower

TEXT_KEYS = frozenset(("context_length", "vocab_size", "width", "heads", "layers"))
VISION_KEYS = frozenset(("timm_model_name", "timm_model_pretrained", "timm_pool", "timm_proj", "image_size"))
MODEL_KEYS = frozenset(("embed_dim", "vision_cfg", "text_cfg"))
"""Keys of open_clip's descriptions that this model understands; with any other key open_clip builds the model."""
INIT_LOGIT_SCALE = math.log(1 / 0.07)
"""Of CLIP (arXiv 2103.00020, section 2.5). No code here reads it, but checkpoints hold it."""


def is_small_clip(config: Mapping[str, Any]) -> bool:
    """Return whether `SmallClip` builds a description that `check_open_clip_config` accepts."""
    vision, text = config["vision_cfg"], config["text_cfg"]
    return (
        vision.get("timm_model_name") in TOWERS
        and set(config) == MODEL_KEYS
        and set(vision) <= VISION_KEYS
        and set(text) == TEXT_KEYS
        and (vision.get("timm_pool"), vision.get("timm_proj")) == ("", "none")
    )


class SmallClip(nn.Module):
    """An image tower and a text transformer with the methods of an open_clip model that `Encoder` uses."""

    attn_mask: Tensor

    def __init__(self, config: Mapping[str, Any]) -> None:
        """`config`: see `is_small_clip`. Starts from random weights."""
        super().__init__()
        text = config["text_cfg"]
        width, context_length = text["width"], text["context_length"]
        self.visual = ImageTower(TOWERS[config["vision_cfg"]["timm_model_name"]]())
        # Modules are made, and weights drawn, in open_clip's order, and registered in its other order: a seed gives the
        # same weights, and an optimizer sees them in the same sequence.
        token_embedding = nn.Embedding(text["vocab_size"], width)
        self.transformer = TextTransformer(width, text["heads"], text["layers"])
        self.token_embedding = token_embedding
        self.positional_embedding = nn.Parameter(torch.empty(context_length, width))
        self.ln_final = nn.LayerNorm(width)
        self.register_buffer("attn_mask", causal_mask(context_length), persistent=False)
        self.text_projection = nn.Parameter(torch.empty(width, config["embed_dim"]))
        self._init_weights(width, text["layers"])
        self.logit_scale = nn.Parameter(torch.ones([]) * INIT_LOGIT_SCALE)

    def encode_text(self, token_ids: Tensor) -> Tensor:
        """Token ids int64 [N, L] -> vectors [N, embed_dim]: the states of the last words, which have the largest id."""
        tokens = self.token_embedding(token_ids) + self.positional_embedding
        states = self.ln_final(self.transformer(tokens, self.attn_mask))
        last = states[torch.arange(len(states), device=states.device), token_ids.argmax(dim=-1)]
        return last @ self.text_projection

    def _init_weights(self, width: int, layers: int) -> None:
        nn.init.normal_(self.token_embedding.weight, std=0.02)
        nn.init.normal_(self.positional_embedding, std=0.01)
        for block in self.transformer.resblocks:
            assert isinstance(block, TextBlock)
            nn.init.normal_(block.attn.in_proj_weight, std=width**-0.5)
            nn.init.normal_(block.attn.out_proj.weight, std=width**-0.5 * (2 * layers) ** -0.5)
            first, second = block.mlp.c_fc, block.mlp.c_proj
            assert isinstance(first, nn.Linear) and isinstance(second, nn.Linear)
            nn.init.normal_(first.weight, std=(2 * width) ** -0.5)
            nn.init.normal_(second.weight, std=width**-0.5 * (2 * layers) ** -0.5)
        nn.init.normal_(self.text_projection, std=width**-0.5)


class ImageTower(nn.Module):
    """A tower of this package, with the interface and the parameter names of open_clip's image towers."""

    def __init__(self, trunk: Tower) -> None:
        super().__init__()
        self.trunk = trunk

    def forward_intermediates(self, images: Tensor, indices: list[int], **_: Any) -> dict[str, list[Tensor]]:
        """Return the feature maps [M, C, h, w] of normalized images [M, 3, H, W] at the levels `indices`."""
        return {"image_intermediates": self.trunk.forward_intermediates(images, indices)}


class TextTransformer(nn.Module):
    """Transformer blocks with causal attention."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.resblocks = nn.ModuleList(TextBlock(width, heads) for _ in range(layers))

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return the states [N, L, width] of tokens [N, L, width]."""
        for block in self.resblocks:
            tokens = block(tokens, mask)
        return tokens


class TextBlock(nn.Module):
    """Attention and a perceptron, normalized before (pre-norm) and added to their input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln_2 = nn.LayerNorm(width)
        layers = {"c_fc": nn.Linear(width, 4 * width), "gelu": nn.GELU(), "c_proj": nn.Linear(4 * width, width)}
        self.mlp = nn.Sequential(OrderedDict(layers))

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return the states [N, L, width] after the block."""
        normed = self.ln_1(tokens)
        tokens = tokens + self.attn(normed, normed, normed, need_weights=False, attn_mask=mask)[0]
        return tokens + self.mlp(self.ln_2(tokens))


def causal_mask(length: int) -> Tensor:
    """Return the additive attention mask float [L, L] in which no token attends to a later one."""
    return torch.full((length, length), float("-inf")).triu_(1)
