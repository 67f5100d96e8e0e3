"""ReWiND: four transformer layers over the embeddings of sixteen frames and an instruction."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from embodied_rm.errors import CheckpointError
from embodied_rm.models.encoders import resize
from embodied_rm.models.judges.chat import Answer, Query
from embodied_rm.models.judges.judge_state import EpisodeContext
from embodied_rm.models.judges.questions import ParsedAnswer, Question, camera_videos, mean_head_output
from embodied_rm.models.load_pretrained import load_weights
from embodied_rm.models.released.rewind_encoders import IMAGE_EMBED_DIM, TEXT_EMBED_DIM, RewindEncoders
from embodied_rm.models.released.torch_pickle import UnresolvedObject, describe_keys, read_torch_file, select_tensors
from embodied_rm.types import Frames

NUM_FRAMES = 16  # maximum number of frames per video; a longer video is subsampled evenly
HIDDEN_DIM = 512
CROP_SIZE_PX = 224  # height and width of the images of its vision model
INTERPOLATION_OFFSET = 0.1  # patches that DINOv2's authors add to the size, against rounding errors


class RewindNet(nn.Module):
    """Causal transformer that predicts progress in [0, 1] of every frame of a video."""

    def __init__(self) -> None:
        super().__init__()
        self.video_proj = nn.Linear(IMAGE_EMBED_DIM, HIDDEN_DIM)
        self.text_proj = nn.Linear(TEXT_EMBED_DIM, HIDDEN_DIM)
        self.first_pos_embed = nn.Parameter(torch.zeros(1, HIDDEN_DIM))
        self.class_token = nn.Parameter(torch.zeros(1, 1, HIDDEN_DIM))  # in the checkpoints, but unused
        layer = nn.TransformerEncoderLayer(HIDDEN_DIM, 8, 2048, 0.1, batch_first=True)
        self.transformer = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        head_dim = HIDDEN_DIM // 2
        hidden = (nn.Linear(HIDDEN_DIM, head_dim), nn.LayerNorm(head_dim), nn.GELU(), nn.Dropout(0.1))
        self.progress_head = nn.Sequential(*hidden, nn.Linear(head_dim, 1), nn.Sigmoid())

    def forward(self, image_embeds: Tensor, text_embeds: Tensor) -> Tensor:
        """Return the progress of all frames, [N, L] in [0, 1], of [N, L, IMAGE_EMBED_DIM] and [N, TEXT_EMBED_DIM]."""
        frames = self.video_proj(image_embeds)
        first = frames[:, :1] + self.first_pos_embed
        tokens = torch.cat([self.text_proj(text_embeds)[:, None], first, frames[:, 1:]], dim=1)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        return self.progress_head(self.transformer(tokens, mask=mask, is_causal=True)[:, 1:])[..., 0]


class RewindChat:
    """A `ChatModel` that answers with the head output `progress` of the last frame of a query."""

    def __init__(self, folder: Path, base_model: Path, *, device: str = "cpu") -> None:
        """Load the .pth file or the folder with it, and the encoders in the folders of `base_model`.

        `CheckpointError` if a file is not as released; the message names it.
        """
        self.net = load_net(folder).to(device).eval()
        self.encoders = RewindEncoders(base_model, center_crop, device=device)
        interpolate_position_embeddings(self.encoders.vision_model)

    @torch.inference_mode()
    def ask(self, queries: Sequence[Query]) -> list[Answer]:
        """Answer every query, in order."""
        video_embeds, text_embeds = embed_queries(self.encoders, queries)
        # The net is causal: frames after the last one of a query do not change its progress.
        progress = self.net(nn.utils.rnn.pad_sequence(video_embeds, batch_first=True), text_embeds).tolist()
        rows = zip(progress, video_embeds, strict=True)
        return [Answer(head_outputs={"progress": values[len(embeds) - 1]}) for values, embeds in rows]


def embed_queries(encoders: RewindEncoders, queries: Sequence[Query]) -> tuple[list[Tensor], Tensor]:
    """Return the embeddings of the videos, each [L, IMAGE_EMBED_DIM], and of the instructions [N, TEXT_EMBED_DIM]."""
    videos = [[part for part in query.parts[1:] if not isinstance(part, str)] for query in queries]
    text_embeds = torch.stack([encoders.encode_text(str(query.parts[0])) for query in queries])
    return encoders.encode_videos(videos), text_embeds


@dataclass(frozen=True)
class RewindQuestion(Question):
    """Progress at the last of up to sixteen frames; the mean of one video per camera.

    `offline`: whether it is that of the authors' labels of recorded episodes. That of their online reward leaves out
    the first frame, which precedes every action, and repeats the last frame of a shorter video.
    """

    history_capacity = 64
    offline: bool = False

    def build_queries(self, context: EpisodeContext) -> tuple[Query, ...]:
        num_frames, start = (0, 0) if self.offline else (NUM_FRAMES, 1)
        videos = camera_videos(context, NUM_FRAMES, truncate=True, num_frames=num_frames, start=start)
        return tuple(Query(parts=(context.instruction, *video)) for video in videos)

    def parse_answers(self, answers: Sequence[Answer], context: EpisodeContext) -> ParsedAnswer | None:
        return ParsedAnswer(mean_head_output(answers, "progress"))


def center_crop(frame: Frames) -> Tensor:
    """Return the center of an image uint8 [H, W, 3] as float [3, CROP_SIZE_PX, CROP_SIZE_PX] in [-1, 1].

    A smaller image is enlarged first.
    """
    image = torch.from_numpy(frame).permute(2, 0, 1)[None].float()
    height, width = image.shape[2:]
    if min(height, width) < CROP_SIZE_PX:
        scale = CROP_SIZE_PX / min(height, width)
        image = resize(image, (max(CROP_SIZE_PX, round(height * scale)), max(CROP_SIZE_PX, round(width * scale))))
        height, width = image.shape[2:]
    top, left = round((height - CROP_SIZE_PX) / 2), round((width - CROP_SIZE_PX) / 2)
    return image[0, :, top : top + CROP_SIZE_PX, left : left + CROP_SIZE_PX] / 127.5 - 1


def interpolate_position_embeddings(model: Any) -> None:
    """Interpolate the position embeddings of a DINOv2 to the size of the crops, as its authors do.

    They scale by (patches + 0.1) / patches of training; `transformers` scales to the number of patches, which shifts
    the embeddings of an image by about a percent.
    """
    table = model.embeddings.position_embeddings.data
    num_trained, num_patches = round((table.shape[1] - 1) ** 0.5), CROP_SIZE_PX // model.config.patch_size
    if num_trained == num_patches:
        return
    grid = table[:, 1:].reshape(1, num_trained, num_trained, -1).permute(0, 3, 1, 2).float()
    scale = (num_patches + INTERPOLATION_OFFSET) / num_trained
    scaled = nn.functional.interpolate(grid, scale_factor=(scale, scale), mode="bicubic")
    patches = scaled.permute(0, 2, 3, 1).reshape(1, num_patches**2, -1).to(table.dtype)
    model.embeddings.position_embeddings = nn.Parameter(torch.cat([table[:, :1], patches], dim=1))


def load_net(folder: Path) -> RewindNet:
    """Load the network of a released file, or of a folder with one; `CheckpointError` if it cannot be loaded."""
    path = folder if folder.is_file() else next(iter(sorted(folder.glob("*.pth"))), None)
    if path is None:
        names = ", ".join(sorted(entry.name for entry in folder.glob("*"))) or "no file"
        raise CheckpointError(
            f"{folder}: it has neither a .pth file nor a config.json with model_type 'rewind_transformer', only {names}"
        )
    checkpoint = read_torch_file(path)
    weights = select_tensors(checkpoint.get("model_state_dict")) if isinstance(checkpoint, dict) else {}
    if not weights:
        raise CheckpointError(f"{path}: no model_state_dict in it, only {describe_keys(checkpoint)}")
    train_args = checkpoint.get("args")
    state = train_args.state if isinstance(train_args, UnresolvedObject) else None
    length = state.get("max_length", NUM_FRAMES) if isinstance(state, dict) else NUM_FRAMES
    if not isinstance(length, int) or length != NUM_FRAMES:
        frames = f"{length} frames" if isinstance(length, int) else f"a max_length of type {type(length).__name__}"
        raise CheckpointError(f"{path}: trained on videos of {frames}, only {NUM_FRAMES} frames are supported")
    net = RewindNet()
    load_weights(net, weights, f"{path}: not a ReWiND as released")
    return net
