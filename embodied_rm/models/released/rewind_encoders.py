"""The frozen encoders of ReWiND: DINOv2 for images and MiniLM for instructions."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import torch
import transformers
from tokenizers import Tokenizer
from torch import Tensor, nn

from embodied_rm.errors import CheckpointError
from embodied_rm.models.load_pretrained import check_missing, load_pretrained, weight_names
from embodied_rm.models.tokens import MAX_TEXT_CHARS
from embodied_rm.types import Frames

IMAGE_EMBED_DIM, TEXT_EMBED_DIM = 768, 384
MAX_TEXT_TOKENS = 128  # maximum number of tokens of an instruction
VISION_MODEL_DIR, TEXT_MODEL_DIR = "dinov2", "minilm"
"""Folders in `base_model` with facebook/dinov2-base and sentence-transformers/all-MiniLM-L12-v2."""
MAX_CACHED_EMBEDDINGS = 4096
"""Maximum number of cached image embeddings. All frames of a video but the last one were in earlier queries."""


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
        try:
            self.tokenizer = Tokenizer.from_file(str(text_dir / "tokenizer.json"))
        except Exception as error:  # the library raises no narrower one
            raise CheckpointError(f"{text_dir}: its tokenizer.json cannot be read ({error})") from None
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(MAX_TEXT_TOKENS)
        self._image_cache: dict[bytes, Tensor] = {}
        self._text_cache: dict[str, Tensor] = {}

    def encode_video(self, frames: Sequence[Frames]) -> Tensor:
        """Return the embeddings of cached images, [L, IMAGE_EMBED_DIM]; see `cache_images`."""
        return torch.stack([self._image_cache[frame.tobytes()] for frame in frames])

    def encode_text(self, task: str) -> Tensor:
        """Return the embedding of an instruction [TEXT_EMBED_DIM]: the mean over its tokens."""
        if task not in self._text_cache:
            if len(self._text_cache) >= MAX_CACHED_EMBEDDINGS:
                self._text_cache.clear()
            ids = torch.tensor([self.tokenizer.encode(task[:MAX_TEXT_CHARS]).ids], device=self._device)
            embedding = self.text_model(input_ids=ids).last_hidden_state.mean(dim=1)[0]
            self._text_cache[task] = nn.functional.normalize(embedding, dim=0) if self._normalize_text else embedding
        return self._text_cache[task]

    def cache_images(self, frames: Sequence[Frames]) -> None:
        """Add the class token embeddings of images to the cache."""
        new_frames = {key: frame for frame in frames if (key := frame.tobytes()) not in self._image_cache}
        if len(self._image_cache) + len(new_frames) > MAX_CACHED_EMBEDDINGS:
            keys = {frame.tobytes() for frame in frames}
            self._image_cache = {key: value for key, value in self._image_cache.items() if key in keys}
        if new_frames:
            pixels = torch.stack([self._preprocess(frame) for frame in new_frames.values()]).to(self._device)
            embeddings = self.vision_model(pixel_values=pixels).last_hidden_state[:, 0]
            self._image_cache.update(zip(new_frames, embeddings, strict=True))


def _load_encoder(folder: Path, model_class: Any, embed_dim: int) -> Any:
    model, missing = load_pretrained(model_class, folder, f"cannot be loaded as {model_class.__name__}")
    missing = [name for name in missing if not name.startswith("pooler.")]
    check_missing(str(folder), missing, len(model.state_dict()), weight_names(folder.glob("*.safetensors")))
    if (dim := model.config.hidden_size) != embed_dim:
        raise CheckpointError(f"{folder}: its embeddings have dimension {dim}, not {embed_dim}")
    return model
