"""The frozen encoders of ReWiND: DINOv2 for images and MiniLM for instructions."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import torch
import transformers
from torch import Tensor, nn

from embodied_rm.errors import CheckpointError
from embodied_rm.models.embedding_cache import EmbeddingCache
from embodied_rm.models.load_pretrained import check_missing, checkpoint_errors, load_pretrained, weight_names
from embodied_rm.models.processor_limits import read_tokenizer
from embodied_rm.models.tokens import MAX_TEXT_CHARS
from embodied_rm.types import Frames

IMAGE_EMBED_DIM, TEXT_EMBED_DIM = 768, 384
MAX_TEXT_TOKENS = 128  # maximum number of tokens of an instruction
VISION_MODEL_DIR, TEXT_MODEL_DIR = "dinov2", "minilm"
"""Folders in `base_model` with facebook/dinov2-base and sentence-transformers/all-MiniLM-L12-v2."""


class RewindEncoders:
    """Embeddings of images and instructions, each computed once."""

    def __init__(
        self,
        base_model: Path,
        preprocess: Callable[[Frames], Tensor],
        *,
        normalize_text: bool = False,
        device: str = "cpu",
    ) -> None:
        """Load the encoders in the folders of `base_model`; `CheckpointError` if one cannot be loaded.

        `preprocess`: function that converts an image uint8 [H, W, 3] to the pixels [3, H, W] of DINOv2.
        `normalize_text`: whether the embeddings of instructions have length 1.
        """
        self._preprocess, self._normalize_text, self._device = preprocess, normalize_text, device
        vision_dir, text_dir = base_model / VISION_MODEL_DIR, base_model / TEXT_MODEL_DIR
        self.vision_model = _load_encoder(vision_dir, transformers.Dinov2Model, IMAGE_EMBED_DIM).to(device).eval()
        self.text_model = _load_encoder(text_dir, transformers.BertModel, TEXT_EMBED_DIM).to(device).eval()
        self.tokenizer = read_tokenizer(text_dir)
        self.tokenizer.enable_truncation(MAX_TEXT_TOKENS)
        # All frames of a video but the last one were in earlier queries.
        self._images = EmbeddingCache(self._encode_images)
        self._texts = EmbeddingCache(self._encode_texts)

    def encode_videos(self, videos: Sequence[Sequence[Frames]]) -> list[Tensor]:
        """Return the class token embeddings of videos, each [L, IMAGE_EMBED_DIM]; new images are encoded together."""
        embeddings = torch.stack(self._images.get([frame for video in videos for frame in video]))
        return list(embeddings.split([len(video) for video in videos]))

    def encode_text(self, task: str) -> Tensor:
        """Return the embedding of an instruction [TEXT_EMBED_DIM]: the mean over its tokens."""
        return self._texts.get([task])[0]

    def _encode_images(self, frames: Sequence[Frames]) -> Tensor:
        pixels = torch.stack([self._preprocess(frame) for frame in frames]).to(self._device)
        embeddings: Tensor = self.vision_model(pixel_values=pixels).last_hidden_state[:, 0]
        return embeddings

    def _encode_texts(self, tasks: Sequence[str]) -> list[Tensor]:
        with checkpoint_errors("the text encoder cannot encode an instruction"):
            rows = [self.tokenizer.encode(task[:MAX_TEXT_CHARS]).ids for task in tasks]
        inputs = (torch.tensor([ids], device=self._device) for ids in rows)
        embeddings = [self.text_model(input_ids=ids).last_hidden_state.mean(dim=1)[0] for ids in inputs]
        return [nn.functional.normalize(row, dim=0) if self._normalize_text else row for row in embeddings]


def _load_encoder(folder: Path, model_class: Any, embed_dim: int) -> Any:
    model, missing = load_pretrained(model_class, folder, f"cannot be loaded as {model_class.__name__}")
    missing = [name for name in missing if not name.startswith("pooler.")]
    check_missing(str(folder), missing, len(model.state_dict()), weight_names(folder.glob("*.safetensors")))
    if (dim := model.config.hidden_size) != embed_dim:
        raise CheckpointError(f"{folder}: its embeddings have dimension {dim}, not {embed_dim}")
    return model
