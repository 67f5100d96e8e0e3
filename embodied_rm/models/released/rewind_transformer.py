"""ReWiND as Robometer's authors trained it: a larger network with a progress token after each frame, and success."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import torch
import transformers
from torch import Tensor, nn

from embodied_rm.build_limit import limit_build
from embodied_rm.errors import CheckpointError
from embodied_rm.models.judges.chat import Answer, Query
from embodied_rm.models.load_pretrained import checkpoint_errors, load_weights, read_weights
from embodied_rm.models.processor_limits import check_image_processor
from embodied_rm.models.released.rewind import embed_queries
from embodied_rm.models.released.rewind_encoders import VISION_MODEL_DIR, RewindEncoders
from embodied_rm.models.released.robometer import NUM_FRAMES, RobometerQuestion, to_progress
from embodied_rm.models.released.robometer_weights import HEAD_NAMES, check_heads, head_shape, make_head, read_settings
from embodied_rm.types import Frames

MODEL_TYPE = "rewind_transformer"
SETTING_TYPES = {
    "video_feature_dim": int, "text_feature_dim": int, "hidden_dim": int, "num_layers": int, "num_attention_heads": int,
    "causal_mask": bool,
}  # fmt: skip
"""Settings in config.json that the network is built from -> their types."""
PROGRESS_TOKENS = "prog_token_A"  # weight of networks that are read at a token after each frame
UNUSED_PREFIXES = (
    "image_encoder.", "text_encoder.", "first_embedding_B", "prog_token_B", "preference_", "similarity_",
)  # fmt: skip
"""Weights of the encoders, which are as published, and of comparisons of two videos."""


class RewindTransformerNet(nn.Module):
    """Transformer that predicts progress and success at every frame of a video."""

    def __init__(self, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Build the network of `SETTING_TYPES`, with the heads and progress tokens of its weights."""
        super().__init__()
        width = settings["hidden_dim"]
        self.causal = settings["causal_mask"]
        self.video_proj = nn.Linear(settings["video_feature_dim"], width)
        self.text_proj = nn.Linear(settings["text_feature_dim"], width)
        self.first_embedding_A = nn.Parameter(torch.zeros(1, 1, width))
        layer = nn.TransformerEncoderLayer(width, settings["num_attention_heads"], 4 * width, batch_first=True)
        self.transformer = nn.TransformerEncoder(layer, settings["num_layers"], enable_nested_tensor=False)
        self.text_position_embedding: nn.Parameter | None = None
        self.prog_token_A: nn.Parameter | None = None
        if PROGRESS_TOKENS in tensors:
            self.text_position_embedding = nn.Parameter(torch.zeros(1, 1, width))
            self.prog_token_A = nn.Parameter(torch.zeros(1, tensors[PROGRESS_TOKENS].shape[1], width))
        for name in HEAD_NAMES:
            self.add_module(name, make_head(*head_shape(tensors, name)))

    def forward(self, image_embeds: Tensor, text_embeds: Tensor) -> dict[str, Tensor]:
        """Return the logits [N, outputs] of each head at the last frame.

        `image_embeds`: [N, L, video_feature_dim]. `text_embeds`: [N, text_feature_dim].
        """
        frames, text = self.video_proj(image_embeds), self.text_proj(text_embeds)[:, None]
        frames = torch.cat([frames[:, :1] + self.first_embedding_A, frames[:, 1:]], dim=1)
        if self.prog_token_A is not None and self.text_position_embedding is not None:
            progress_tokens = self.prog_token_A[:, : frames.shape[1]].expand_as(frames)
            frames = torch.stack([frames, progress_tokens], dim=2).flatten(1, 2)
            text = text + self.text_position_embedding
        tokens = torch.cat([text, frames], dim=1)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        states = self.transformer(tokens, mask=mask if self.causal else None)[:, -1]
        return {name: self.get_submodule(name)(states) for name in HEAD_NAMES}


class RewindTransformerChat:
    """A `ChatModel` that answers with the head outputs `progress` and `success` of the last frame of a query."""

    def __init__(self, folder: Path, base_model: Path, *, device: str = "cpu") -> None:
        """Load the safetensors of `folder`, and the encoders in the folders of `base_model`.

        `CheckpointError` if a file is not as released; the message names it.
        """
        self.net = load_transformer_net(folder).to(device).eval()
        vision_dir = base_model / VISION_MODEL_DIR
        with checkpoint_errors(f"{vision_dir}: its image processor cannot be loaded"):
            self._image_processor = transformers.AutoImageProcessor.from_pretrained(
                vision_dir, local_files_only=True, trust_remote_code=False
            )
        check_image_processor(self._image_processor, vision_dir)
        self.encoders = RewindEncoders(base_model, self._preprocess, normalize_text=True, device=device)

    @torch.inference_mode()
    def ask(self, queries: Sequence[Query]) -> list[Answer]:
        """Answer every query, in order; all have the same number of frames."""
        video_embeds, text_embeds = embed_queries(self.encoders, queries)
        logits = self.net(torch.stack(video_embeds), text_embeds)
        progress, success = to_progress(logits[HEAD_NAMES[0]]).tolist(), logits[HEAD_NAMES[1]][:, 0].sigmoid().tolist()
        values = zip(progress, success, strict=True)
        return [Answer(head_outputs={"progress": progress, "success": success}) for progress, success in values]

    def _preprocess(self, frame: Frames) -> Tensor:
        pixels: Tensor = self._image_processor(images=[frame], return_tensors="pt")["pixel_values"][0]
        return pixels


class RewindTransformerQuestion(RobometerQuestion):
    """Progress and success at the last of eight frames, which are those of Robometer."""

    prompt = "{instruction}"


def has_transformer_layout(folder: Path) -> bool:
    """Return whether a folder has a config.json of this network."""
    return read_settings(folder / "config.json").get("model_type") == MODEL_TYPE


def load_transformer_net(folder: Path) -> RewindTransformerNet:
    """Load the network of a folder; `CheckpointError` if it cannot be loaded."""
    path = folder / "config.json"
    settings = read_settings(path)
    for key, setting_type in SETTING_TYPES.items():
        if type(settings.get(key)) is not setting_type:
            raise CheckpointError(
                f"{path}: {key} must be of type {setting_type.__name__}, got {settings.get(key)!r}; "
                f"its keys are {', '.join(sorted(settings))}"
            )
    stored = read_weights(sorted(folder.glob("*.safetensors")))
    tensors = {name: tensor.float() for name, tensor in stored.items() if not name.startswith(UNUSED_PREFIXES)}
    check_heads(str(folder), tensors, stored)
    with checkpoint_errors(f"{folder}: its network cannot be built"), limit_build(tensors, folder):
        net = RewindTransformerNet(settings, tensors)
    load_weights(net, tensors, str(folder))
    if net.prog_token_A is not None and net.prog_token_A.shape[1] < NUM_FRAMES:
        raise CheckpointError(f"{folder}: it has {net.prog_token_A.shape[1]} progress tokens, fewer than {NUM_FRAMES}")
    return net
