"""Encoders of frames for `RelevantFrames`: a pretrained image encoder, or an open_clip model, which also reads text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from embodied_rm.errors import UserError
from embodied_rm.models.clip_similarity import ClipSimilarity
from embodied_rm.models.embedding_cache import EmbeddingCache
from embodied_rm.models.in_context.appearance import make_appearance
from embodied_rm.models.in_context.frozen_encoder import FrozenEncoder, open_frozen_encoder
from embodied_rm.models.judges.frame_history import MultiViewFrame
from embodied_rm.models.judges.frame_selection import FrameEncoder
from embodied_rm.models.open_clip_config import HUB_PREFIX, LOCAL_PREFIX
from embodied_rm.models.pretrained_weights import EFFICIENTNET_LITE0
from embodied_rm.types import Array, Frames


def open_frame_encoder(name: str) -> FrameEncoder:
    """Open `efficientnet_lite0`, or an open_clip model: `local-dir:<folder>` or `hf-hub:<owner>/<name>`.

    `UserError` for another name, `CheckpointError` if the weights cannot be loaded.
    """
    if name == EFFICIENTNET_LITE0.name:
        return ImageFrameEncoder(open_frozen_encoder(name))
    if name.startswith((LOCAL_PREFIX, HUB_PREFIX)):
        return ClipFrameEncoder(ClipSimilarity(name))
    choices = f"{EFFICIENTNET_LITE0.name}, {LOCAL_PREFIX}<folder> or {HUB_PREFIX}<owner>/<name> (open_clip)"
    raise UserError(f"judge.frame_encoder={name}: unknown. Available: {choices}")


class ImageFrameEncoder:
    """A `FrameEncoder` without text: every frame is equally relevant."""

    def __init__(self, encoder: FrozenEncoder) -> None:
        self._encoder = encoder
        self._images = EmbeddingCache(self._encode)

    def embed(self, frames: Sequence[MultiViewFrame]) -> Array:
        """Return unit vectors float32 [n, D]."""
        return mean_over_views(frames, self._images)

    def relevance(self, embeddings: Array, instruction: str) -> Array:
        """Return 1 for every frame, float32 [n]."""
        return np.ones(len(embeddings), np.float32)

    def _encode(self, images: Sequence[Frames]) -> list[Tensor]:
        """Return each image's maps, pooled to 4 x 4 cells, as a unit vector [D].

        A mean over the whole image would lose where something is.
        """
        # One image per call: its embedding must not depend, by a rounding, on the images beside it.
        cells = (make_appearance(self._encoder.encode(image[None])).coarse.flatten() for image in images)
        return [nn.functional.normalize(vector, dim=0) for vector in cells]


class ClipFrameEncoder:
    """A `FrameEncoder` of an open_clip model."""

    def __init__(self, model: ClipSimilarity) -> None:
        self._model = model
        self._images = EmbeddingCache(self._encode_images)
        self._texts = EmbeddingCache(self._encode_texts)

    def embed(self, frames: Sequence[MultiViewFrame]) -> Array:
        """Return unit vectors float32 [n, D]."""
        return mean_over_views(frames, self._images)

    def relevance(self, embeddings: Array, instruction: str) -> Array:
        """Return exp(scale (s - max s)), float32 [n], of the frames' similarities s to the instruction.

        The scale is that of the model's training, under which exp(scale s) is proportional to the probability that a
        sentence belongs to an image. So the relevance is how much less likely the instruction is for a frame than for
        the best one. The maximum keeps it in (0, 1]; as a common factor, it does not change the choice.
        """
        (text,) = self._texts.get([instruction])
        similarity = embeddings @ text.numpy()
        relevance: Array = np.exp(self._model.logit_scale * (similarity - similarity.max()))
        return relevance

    def _encode_images(self, images: Sequence[Frames]) -> list[Tensor]:
        return [self._model.encode_image(image[None])[0] for image in images]

    def _encode_texts(self, texts: Sequence[str]) -> list[Tensor]:
        return [self._model.encode_text([text])[0] for text in texts]


def mean_over_views(frames: Sequence[MultiViewFrame], cache: EmbeddingCache[Frames]) -> Array:
    """Return the mean embedding of each frame's visible views, at least one, as unit vectors float32 [n, D].

    Each camera has the same weight; one that sees nothing has none.
    """
    embeddings = torch.stack(cache.get([image for frame in frames for image in frame.frames[frame.visible]]))
    views = embeddings.split([int(frame.visible.sum()) for frame in frames])
    return nn.functional.normalize(torch.stack([rows.mean(dim=0) for rows in views]), dim=1).numpy()
