"""ReWiND: four transformer layers over the embeddings of sixteen frames and an instruction."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import torch
import transformers
from tokenizers import Tokenizer
from torch import Tensor, nn

from embodied_rm.errors import CheckpointError
from embodied_rm.models.encoders import resize
from embodied_rm.models.judges.chat import Answer, Query
from embodied_rm.models.judges.judge_state import EpisodeContext
from embodied_rm.models.judges.questions import ParsedAnswer, Question, camera_videos, mean_head_output
from embodied_rm.models.load_pretrained import checkpoint_errors, load_pretrained
from embodied_rm.models.released.torch_pickle import UnresolvedObject, read_torch_file
from embodied_rm.types import Frames

NUM_FRAMES = 16  # Frames per video. A longer video is subsampled evenly, a shorter one repeats its last frame.
IMAGE_EMBED_DIM, TEXT_EMBED_DIM, HIDDEN_DIM = 768, 384, 512
"""Dimensions of the embeddings of an image and an instruction, and of the hidden states."""
CROP_SIZE_PX = 224  # height and width of the images of its vision model
INTERPOLATION_OFFSET = 0.1  # patches that DINOv2's authors add to the size, against rounding errors
MAX_TEXT_TOKENS = 128  # maximum number of tokens of an instruction
VISION_MODEL_DIR, TEXT_MODEL_DIR = "dinov2", "minilm"
"""Folders in `base_model` with facebook/dinov2-base and sentence-transformers/all-MiniLM-L12-v2."""
MAX_CACHED_EMBEDDINGS = 4096
"""Maximum number of cached image embeddings. All frames of a video but the last one were in earlier queries."""


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
    """A `ChatModel` that answers with the head output `progress` of the last frame."""

    def __init__(self, folder: Path, base_model: Path, *, device: str = "cpu") -> None:
        """Load the .pth file or the folder with it, and the encoders in the folders of `base_model`.

        `CheckpointError` if a file is not as released; the message names it.
        """
        self._device = device
        self.net = load_net(folder).to(device).eval()
        vision_dir, text_dir = base_model / VISION_MODEL_DIR, base_model / TEXT_MODEL_DIR
        self.vision_model = _load_encoder(vision_dir, transformers.Dinov2Model, IMAGE_EMBED_DIM)
        interpolate_position_embeddings(self.vision_model)
        self.vision_model.to(device).eval()
        self.text_model = _load_encoder(text_dir, transformers.BertModel, TEXT_EMBED_DIM).to(device).eval()
        try:
            self.tokenizer = Tokenizer.from_file(str(text_dir / "tokenizer.json"))
        except Exception as error:  # the library raises no narrower one
            raise CheckpointError(f"{text_dir}: its tokenizer.json cannot be read ({error})") from None
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(MAX_TEXT_TOKENS)
        self._image_cache: dict[bytes, Tensor] = {}
        self._text_cache: dict[str, Tensor] = {}

    @torch.inference_mode()
    def ask(self, queries: Sequence[Query]) -> list[Answer]:
        """Answer every query, in order."""
        tasks = [str(query.parts[0]) for query in queries]
        videos = [[part for part in query.parts[1:] if not isinstance(part, str)] for query in queries]
        self._encode_images([frame for video in videos for frame in video])
        image_embeds = torch.stack([torch.stack([self._image_cache[f.tobytes()] for f in video]) for video in videos])
        progress = self.net(image_embeds, torch.stack([self.encode_text(task) for task in tasks]))[:, -1].tolist()
        return [Answer(head_outputs={"progress": value}) for value in progress]

    def encode_text(self, task: str) -> Tensor:
        """Return the embedding of an instruction [TEXT_EMBED_DIM]: the mean over its tokens, not normalized."""
        if task not in self._text_cache:
            ids = torch.tensor([self.tokenizer.encode(task).ids], device=self._device)
            self._text_cache[task] = self.text_model(input_ids=ids).last_hidden_state.mean(dim=1)[0]
        return self._text_cache[task]

    def _encode_images(self, frames: Sequence[Frames]) -> None:
        """Add the class token embeddings of images to the cache."""
        new_frames = {key: frame for frame in frames if (key := frame.tobytes()) not in self._image_cache}
        if len(self._image_cache) + len(new_frames) > MAX_CACHED_EMBEDDINGS:
            keys = {frame.tobytes() for frame in frames}
            self._image_cache = {key: value for key, value in self._image_cache.items() if key in keys}
        if new_frames:
            pixels = torch.stack([center_crop(frame) for frame in new_frames.values()]).to(self._device)
            embeddings = self.vision_model(pixel_values=pixels).last_hidden_state[:, 0]
            self._image_cache.update(zip(new_frames, embeddings, strict=True))


class RewindQuestion(Question):
    """Progress at the last of up to sixteen frames; the mean of one video per camera."""

    history_capacity = 64

    def build_queries(self, context: EpisodeContext) -> tuple[Query, ...]:
        videos = camera_videos(context, NUM_FRAMES, truncate=True, num_frames=NUM_FRAMES)
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
    path = folder if folder.is_file() else next(iter(sorted(folder.glob("*.pth"))), folder / "*.pth")
    checkpoint = read_torch_file(path)
    weights = checkpoint.get("model_state_dict") if isinstance(checkpoint, dict) else None
    if not isinstance(weights, dict):
        raise CheckpointError(f"{path}: no model_state_dict in it")
    train_args = checkpoint.get("args")
    length = train_args.state.get("max_length", NUM_FRAMES) if isinstance(train_args, UnresolvedObject) else NUM_FRAMES
    if length != NUM_FRAMES:
        raise CheckpointError(f"{path}: trained on videos of {length} frames, only {NUM_FRAMES} are supported")
    net = RewindNet()
    with checkpoint_errors(f"{path}: not the weights of ReWiND"):
        net.load_state_dict(weights)
    return net


def _load_encoder(folder: Path, model_class: Any, embed_dim: int) -> Any:
    model, missing = load_pretrained(model_class, folder, f"cannot be loaded as {model_class.__name__}")
    missing = [name for name in missing if not name.startswith("pooler.")]
    if missing:
        raise CheckpointError(f"{folder}: {missing[0]} is missing")
    if (dim := model.config.hidden_size) != embed_dim:
        raise CheckpointError(f"{folder}: its embeddings have dimension {dim}, not {embed_dim}")
    return model
