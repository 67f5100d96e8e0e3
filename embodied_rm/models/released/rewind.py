"""ReWiND: four transformer layers over the embeddings of sixteen frames and a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
from embodied_rm.models.judges.memory import Moment
from embodied_rm.models.judges.questions import Said
from embodied_rm.models.released.torch_file import Foreign, read_torch_file
from embodied_rm.models.transformers_towers import FAULTS
from embodied_rm.types import Frames

LENGTH = 16
"""Frames that it sees: of a longer film so many evenly, a shorter one goes on with its last."""
SEEN, READ, WIDTH = 768, 384, 512
"""Length of a picture's and of a sentence's embedding, and of its states."""
CROP = 224
"""Pixels, height and width, of what its eye sees."""
LONGEST = 128
"""Most tokens of a sentence."""
EYE, READER = "dinov2", "minilm"
"""Folders in `base`, with what facebook/dinov2-base and sentence-transformers/all-MiniLM-L12-v2 hold."""
KEPT = 4096
"""Embeddings of pictures that are remembered: of a film all but the last frame were seen before."""


class RewindNet(nn.Module):
    """Progress in [0, 1] of every frame of a film, each judged by those up to it."""

    def __init__(self) -> None:
        super().__init__()
        self.video_proj = nn.Linear(SEEN, WIDTH)
        self.text_proj = nn.Linear(READ, WIDTH)
        self.first_pos_embed = nn.Parameter(torch.zeros(1, WIDTH))
        self.class_token = nn.Parameter(torch.zeros(1, 1, WIDTH))  # stored, and used nowhere
        layer = nn.TransformerEncoderLayer(WIDTH, 8, 2048, 0.1, batch_first=True)
        self.transformer = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        half = WIDTH // 2
        self.progress_head = nn.Sequential(
            nn.Linear(WIDTH, half), nn.LayerNorm(half), nn.GELU(), nn.Dropout(0.1), nn.Linear(half, 1), nn.Sigmoid()
        )

    def forward(self, seen: Tensor, read: Tensor) -> Tensor:
        """Of embeddings of frames [N, L, SEEN] and sentences [N, READ]: progress [N, L]."""
        frames = self.video_proj(seen)
        first = frames[:, :1] + self.first_pos_embed
        tokens = torch.cat([self.text_proj(read)[:, None], first, frames[:, 1:]], dim=1)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        return self.progress_head(self.transformer(tokens, mask=mask, is_causal=True)[:, 1:])[..., 0]


class RewindChat:
    """A `Chat` that answers with a number: the `progress` of the last frame. `folder` is the .pth file, or has one;
    `base` has its two encoders in the folders `dinov2` and `minilm`."""

    def __init__(self, folder: Path, base: Path, *, device: str = "cpu") -> None:
        """Raises `CheckpointError` naming the file that is not as released."""
        self._device = device
        self.net = read_net(folder).to(device).eval()
        self.eye: Any = _encoder(base / EYE, transformers.Dinov2Model, SEEN).to(device).eval()
        self.reader: Any = _encoder(base / READER, transformers.BertModel, READ).to(device).eval()
        try:
            self.tokenizer = Tokenizer.from_file(str(base / READER / "tokenizer.json"))
        except Exception as fault:  # the library raises no narrower one
            raise CheckpointError(f"{base / READER}: its tokenizer.json cannot be read ({fault})") from None
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(LONGEST)
        self._seen: dict[bytes, Tensor] = {}
        self._read: dict[str, Tensor] = {}

    @torch.inference_mode()
    def ask(self, queries: Sequence[Query]) -> list[Answer]:
        """One answer each, in order."""
        tasks = [str(query.parts[0]) for query in queries]
        films = [[part for part in query.parts[1:] if not isinstance(part, str)] for query in queries]
        self._look([frame for film in films for frame in film])
        seen = torch.stack([torch.stack([self._seen[frame.tobytes()] for frame in film]) for film in films])
        progress = self.net(seen, torch.stack([self.hear(task) for task in tasks]))[:, -1].tolist()
        return [Answer(numbers={"progress": value}) for value in progress]

    def hear(self, task: str) -> Tensor:
        """The sentence's embedding [READ]: the mean of its tokens', not normalised."""
        if task not in self._read:
            ids = torch.tensor([self.tokenizer.encode(task).ids], device=self._device)
            self._read[task] = self.reader(input_ids=ids).last_hidden_state.mean(dim=1)[0]
        return self._read[task]

    def _look(self, frames: Sequence[Frames]) -> None:
        """Remember what the eye makes of pictures: the vector of its class token."""
        fresh = {key: frame for frame in frames if (key := frame.tobytes()) not in self._seen}
        if len(self._seen) + len(fresh) > KEPT:
            self._seen = {key: self._seen[key] for frame in frames if (key := frame.tobytes()) in self._seen}
        if fresh:
            pixels = torch.stack([cropped(frame) for frame in fresh.values()]).to(self._device)
            vectors = self.eye(pixel_values=pixels).last_hidden_state[:, 0]
            self._seen.update(zip(fresh, vectors, strict=True))


@dataclass(frozen=True)
class Sixteen:
    """The progress of the last of up to sixteen frames, each camera a film of its own; the mean of all."""

    tells_success: bool = False
    looks_back: bool = False
    keeps: int = 64

    def ask(self, moment: Moment) -> tuple[Query, ...]:
        shown = moment.film.evenly(moment.now, LENGTH)
        queries = []
        for view in moment.now.of(moment.names):
            film = [seen[view] for picture in shown if view in (seen := picture.of(moment.names))]
            queries.append(Query(parts=(moment.instruction, *film, *film[-1:] * (LENGTH - len(film)))))
        return tuple(queries)

    def read(self, answers: Sequence[Answer], moment: Moment) -> Said | None:
        told = [answer.numbers["progress"] for answer in answers if answer.numbers is not None]
        assert len(told) == len(answers)
        return Said(sum(told) / len(told))


def cropped(frame: Frames) -> Tensor:
    """float [3, CROP, CROP] in [-1, 1]: the middle of a picture uint8 [H, W, 3], one that is smaller enlarged first."""
    picture = torch.from_numpy(frame).permute(2, 0, 1)[None].float()
    height, width = picture.shape[2:]
    if min(height, width) < CROP:
        scale = CROP / min(height, width)
        picture = resize(picture, (max(CROP, round(height * scale)), max(CROP, round(width * scale))))
        height, width = picture.shape[2:]
    top, left = round((height - CROP) / 2), round((width - CROP) / 2)
    return picture[0, :, top : top + CROP, left : left + CROP] / 127.5 - 1


def read_net(folder: Path) -> RewindNet:
    """The net of a released file. Raises `CheckpointError` naming it and its fault."""
    path = folder if folder.is_file() else next(iter(sorted(folder.glob("*.pth"))), folder / "*.pth")
    stored = read_torch_file(path)
    weights = stored.get("model_state_dict") if isinstance(stored, dict) else None
    if not isinstance(weights, dict):
        raise CheckpointError(f"{path}: no model_state_dict in it")
    arguments = stored.get("args")
    length = arguments.state.get("max_length", LENGTH) if isinstance(arguments, Foreign) else LENGTH
    if length != LENGTH:
        raise CheckpointError(f"{path}: made for films of {length} frames, only those of {LENGTH} are read")
    net = RewindNet()
    try:
        net.load_state_dict(weights)
    except (RuntimeError, AttributeError, TypeError) as fault:
        raise CheckpointError(f"{path}: not the weights of ReWiND ({fault})") from None
    return net


def _encoder(folder: Path, kind: Any, width: int) -> nn.Module:
    try:
        model, told = kind.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, output_loading_info=True
        )
    except (*FAULTS, ImportError) as fault:
        raise CheckpointError(f"{folder}: holds no {kind.__name__} that can be loaded ({fault})") from None
    missing = [name for name in told["missing_keys"] if not name.startswith("pooler.")]
    if missing or model.config.hidden_size != width:
        what = f"{missing[0]} is missing" if missing else f"its vectors have {model.config.hidden_size}, not {width}"
        raise CheckpointError(f"{folder}: {what}")
    return model
