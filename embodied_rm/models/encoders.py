"""Image and text encoders: a CLIP-like model with feature maps from its image tower, vectors from its text tower."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from embodied_rm.errors import UserError
from embodied_rm.models.open_clip_config import build_clip
from embodied_rm.models.tokens import tokenize
from embodied_rm.types import Episode, Frames

CONTEXT_LENGTH = 32  # largest number of tokens of an instruction
MAX_CACHED_SENTENCES = 10_000  # instruction vectors that a frozen text tower caches before it clears the cache
MAX_IMAGE_SIDE_PX = 2048  # of the images that a tower reads: no weight bounds their size
VOCAB_SIZE = 4096  # vocabulary size of the small text tower; see `tokens.tokenize`


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """A complete description of the encoders, from which a checkpoint rebuilds them without their source."""

    open_clip: Mapping[str, Any]
    """open_clip's `model_cfg`: embed_dim, vision_cfg, text_cfg; for a model of `transformers`, embed_dim only."""
    image_size: tuple[int, int]  # height and width in pixels that images are resized to
    feature_level: int = -1  # index of the image tower's feature map that is used; later layers are removed
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.25, 0.25, 0.25)
    """Mean and standard deviation per color channel (red, green, blue), for pixels in [0, 1]."""
    trainable: bool = True  # whether training updates the image tower
    text_trainable: bool | None = None  # whether it updates the text tower; None: as the image tower
    is_pretrained: bool = False  # whether the towers started from published weights
    transformers: Mapping[str, Any] | None = None
    """Description of a model of `transformers` (`TransformersTowers`). None: a model of open_clip."""
    pool_size: tuple[int, int] | None = None
    """Height and width, in cells, that the feature map is pooled to; a smaller map is kept. None: no pooling."""

    def __post_init__(self) -> None:
        sides = tuple(self.image_size)
        if len(sides) != 2 or not all(isinstance(side, int) and 1 <= side <= MAX_IMAGE_SIDE_PX for side in sides):
            raise UserError(f"image_size must be a height and a width from 1 to {MAX_IMAGE_SIDE_PX} px, got {sides}")

    @property
    def trains_text(self) -> bool:
        """Whether training updates the text tower."""
        return self.trainable if self.text_trainable is None else self.text_trainable


def small_encoder_config(tower: str, image_size: tuple[int, int], feature_level: int = -1) -> EncoderConfig:
    """Describe a small open_clip model with random weights and a two-layer text tower.

    `tower` names the image tower, of this package (`towers.TOWERS`) or of timm.
    """
    vision = {"timm_model_name": tower, "timm_pool": "", "timm_proj": "none", "image_size": list(image_size)}
    text = {"context_length": CONTEXT_LENGTH, "vocab_size": VOCAB_SIZE, "width": 64, "heads": 2, "layers": 2}
    open_clip = {"embed_dim": 64, "vision_cfg": vision, "text_cfg": text}
    return EncoderConfig(open_clip=open_clip, image_size=image_size, feature_level=feature_level)


def resize(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize images float [M, 3, H, W], bilinear with antialiasing; the same tensor if they have that size."""
    if pixels.shape[2:] == size:
        return pixels
    return nn.functional.interpolate(pixels, size, mode="bilinear", antialias=True)


def resize_frames(frames: Frames, size: tuple[int, int]) -> Frames:
    """Resize images uint8 [T, H, W, 3] as the encoder does; the same array if they have that size."""
    if frames.shape[1:3] == size:
        return frames
    chunks = torch.from_numpy(np.ascontiguousarray(frames)).permute(0, 3, 1, 2).split(64)
    return torch.cat([resize(chunk.float(), size).round().byte() for chunk in chunks]).permute(0, 2, 3, 1).numpy()


def resize_episode(episode: Episode, views: Sequence[str], size: tuple[int, int]) -> Episode:
    """Return the episode with the given views only, resized."""
    resized_views = {name: resize_frames(frames, size) for name, frames in episode.views.items() if name in views}
    return replace(episode, views=resized_views)


def token_ids(config: EncoderConfig, instructions: Sequence[str]) -> Tensor:
    """Token ids int64 [N, L] of instructions, for the text tower of a description."""
    text = config.open_clip["text_cfg"]
    return tokenize(instructions, text.get("context_length", 77), text.get("vocab_size", 49408))


class Encoder(nn.Module):
    """Images -> feature maps, instructions -> vectors. Deterministic in eval mode; rows are independent."""

    gain: Tensor
    offset: Tensor

    def __init__(self, config: EncoderConfig, clip: Any = None) -> None:
        """Build the encoder around a model with its weights; None: built from the description with random weights."""
        super().__init__()
        self.config = config
        self.clip: Any = build_clip(config.open_clip, config.transformers) if clip is None else clip
        trunk = getattr(self.clip.visual, "trunk", self.clip.visual)
        prune = trunk.prune_intermediate_layers
        (self._feature_level,) = prune([config.feature_level], prune_norm=False, prune_head=True)
        self.clip.requires_grad_(config.trains_text)
        self.clip.visual.requires_grad_(config.trainable)
        mean, std = torch.tensor(config.mean).view(3, 1, 1), torch.tensor(config.std).view(3, 1, 1)
        # Normalized = pixel * gain + offset.
        self.register_buffer("gain", 1 / (255 * std), persistent=False)
        self.register_buffer("offset", -mean / std, persistent=False)
        self.clip.to(memory_format=torch.channels_last)
        self._text_cache: dict[str, Tensor] = {}
        self.train()

    def _load_from_state_dict(self, *args: Any) -> None:
        self._text_cache.clear()
        super()._load_from_state_dict(*args)

    def _apply(self, fn: Any, recurse: bool = True) -> Encoder:
        self._text_cache.clear()  # the towers change their device or precision
        return super()._apply(fn, recurse)

    def train(self, mode: bool = True) -> Encoder:
        """Set the mode. Frozen towers stay in eval mode, since their batch statistics belong to their own training."""
        super().train(mode and self.config.trains_text)
        self.clip.visual.train(mode and self.config.trainable)
        return self

    def preprocess(self, frames: Tensor) -> Tensor:
        """Pixels uint8 [M, H, W, 3] -> normalized float [M, 3, *image_size]."""
        pixels = resize(frames.permute(0, 3, 1, 2).float(), self.config.image_size)
        return torch.addcmul(self.offset, pixels, self.gain)

    def encode_image(self, images: Tensor) -> Tensor:
        """Normalized images float [M, 3, *image_size] -> feature map [M, C, h, w]."""
        outputs = self.clip.visual.forward_intermediates(
            images.contiguous(memory_format=torch.channels_last),
            indices=[self._feature_level],
            stop_early=True,
            normalize_intermediates=True,
            intermediates_only=True,
        )
        features: Tensor = outputs["image_intermediates"][0]
        if self.config.pool_size is None:
            return features
        pool_size = (min(self.config.pool_size[0], features.shape[2]), min(self.config.pool_size[1], features.shape[3]))
        return features if features.shape[2:] == pool_size else nn.functional.adaptive_avg_pool2d(features, pool_size)

    def encode_text(self, sentences: Sequence[str]) -> Tensor:
        """Instruction vectors [N, embed_dim]. A frozen tower encodes each sentence once and caches its vector."""
        if self.config.trains_text:
            return self.encode_tokens(self.tokenize(sentences))
        uncached = [sentence for sentence in dict.fromkeys(sentences) if sentence not in self._text_cache]
        if uncached:
            if len(self._text_cache) > MAX_CACHED_SENTENCES:
                self._text_cache.clear()
                uncached = list(dict.fromkeys(sentences))
            # Cached vectors are used for training too, so they are neither inference tensors nor of reduced precision.
            full_precision = torch.autocast(self.gain.device.type, enabled=False)
            with torch.inference_mode(False), torch.no_grad(), full_precision:
                self._text_cache.update(zip(uncached, self.encode_tokens(self.tokenize(uncached)), strict=True))
        return torch.stack([self._text_cache[sentence] for sentence in sentences])

    def encode_tokens(self, ids: Tensor) -> Tensor:
        """Token ids int64 [N, L] -> instruction vectors [N, embed_dim]."""
        return self.clip.encode_text(ids)

    def tokenize(self, instructions: Sequence[str]) -> Tensor:
        """Token ids int64 [N, L] of the instructions, on this encoder's device."""
        if self.config.transformers is not None:
            return self.clip.tokenize(instructions).to(self.gain.device)
        return token_ids(self.config, instructions).to(self.gain.device)

    def feature_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the feature map, from a blank image; leaves no trace in batch statistics."""
        visual = self.clip.visual
        was_training = visual.training
        visual.eval()
        with torch.no_grad():
            channels, height, width = self.encode_image(torch.zeros(1, 3, *self.config.image_size))[0].shape
        visual.train(was_training)
        return channels, height, width
