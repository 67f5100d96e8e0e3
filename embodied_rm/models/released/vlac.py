"""VLAC: by how much the second of two pictures is closer to a task than the first, and whether a task is done."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.models.judges import released_prompts as prompts
from embodied_rm.models.judges.chat import Answer, Query
from embodied_rm.models.judges.local import DTYPES
from embodied_rm.models.judges.memory import Moment
from embodied_rm.models.judges.questions import Said, cameras, interleaved
from embodied_rm.models.released.intern_layout import read_intern
from embodied_rm.types import Frames

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGE = "<IMG_CONTEXT>"
NUMBER = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)")
THRESHOLD = 0.9
"""What "done" must reach to be believed, as its authors have it."""
FLOOR, MIDDLE = 10.0, 50.0
"""Of the recursion: below the middle a step back costs its share of what was gained; above it, it ends at the floor."""


class VlacChat:
    """A `Chat` of VLAC as released; writes greedily, as its authors do."""

    def __init__(
        self,
        folder: Path,
        *,
        device: str = "cpu",
        dtype: str = "float32",
        attention: str = "sdpa",
        batch: int = 16,
    ) -> None:
        """Raises `CheckpointError` naming the file that is not as released, `UserError` without sentencepiece."""
        self.batch, self._device = batch, device
        self.tokenizer = SentencePieces(folder)
        self.model: Any = read_intern(folder, self.tokenizer.special[IMAGE], DTYPES[dtype], attention)
        self.model.to(device).eval()
        self._ends = _ends(folder / "generation_config.json")

    def ask(self, queries: Sequence[Query]) -> list[Answer]:
        """One answer each, in order."""
        order = sorted(range(len(queries)), key=lambda i: queries[i].max_tokens)
        answers: dict[int, Answer] = {}
        for start in range(0, len(order), self.batch):
            rows = order[start : start + self.batch]
            answers.update(zip(rows, self._answered([queries[i] for i in rows]), strict=True))
        return [answers[i] for i in range(len(queries))]

    @torch.inference_mode()
    def _answered(self, queries: Sequence[Query]) -> list[Answer]:
        rows = [self.tokenizer.encode(self.written(query)) for query in queries]
        length = max(map(len, rows))
        ids = torch.zeros(len(rows), length, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for row, tokens in enumerate(rows):
            ids[row, length - len(tokens) :], mask[row, length - len(tokens) :] = torch.tensor(tokens), 1
        pictures = [part for query in queries for part in query.parts if not isinstance(part, str)]
        size = self.model.config.vision_config.image_size[0]
        pixels = torch.stack([prepared(picture, size) for picture in pictures])
        out = self.model.generate(
            input_ids=ids.to(self._device),
            attention_mask=mask.to(self._device),
            pixel_values=pixels.to(self.model.dtype).to(self._device),
            do_sample=False,
            max_new_tokens=max(query.max_tokens for query in queries),
            eos_token_id=list(self._ends),
            pad_token_id=self._ends[0],
        )
        return [Answer(text=self.tokenizer.decode(row[length:].tolist())) for row in out]

    def written(self, query: Query) -> str:
        """The conversation as text: every picture is as many places as the model sees of it."""
        places = self.model.config.image_seq_length
        image = f"<img>{IMAGE * places}</img>\n"
        user = "".join(part if isinstance(part, str) else image for part in query.parts)
        return (
            f"<|im_start|>system\n{query.system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"
        )


@dataclass(frozen=True)
class Critic:
    """The change since the frame last scored, and whether it is done, of one camera."""

    order: tuple[str, ...] = ()
    """The view it is shown is the first of these that is there; none: the first."""
    tells_success: bool = True
    looks_back: bool = True
    keeps: int = 1

    def ask(self, moment: Moment) -> tuple[Query, ...]:
        before, now = (cameras(picture, moment, self.order)[0] for picture in (moment.previous, moment.now))
        task = moment.instruction
        changed = interleaved(prompts.VLAC_CRITIC, task, [before, now])
        if moment.goal is None:
            done = interleaved(prompts.VLAC_DONE, task, [now])
        else:
            done = interleaved(prompts.VLAC_DONE_BY_GOAL, task, [cameras(moment.goal, moment, self.order)[0], now])
        parts = (tuple(changed), tuple(done))
        return tuple(Query(parts=each, system=prompts.VLAC_SYSTEM, max_tokens=16) for each in parts)

    def read(self, answers: Sequence[Answer], moment: Moment) -> Said | None:
        change, done = (_number(answer.text or "") for answer in answers)
        if change is None or done is None or not -100 <= change <= 100 or not 0 <= done <= 1:
            return None
        return Said(stepped(100 * moment.value, change) / 100, done if done > THRESHOLD else 0.0)


def stepped(value: float, change: float) -> float:
    """The value, 0 to 100, after a change from -100 to 100 (its `mix_f`, the one of its recursions that stays there).

    A step forwards takes its share of what is left.
    """
    if change > 0:
        return value + (100 - value) * change / 100
    if value <= MIDDLE:
        return value + value * change / 100
    left = 100 - value
    return FLOOR if change <= -100 else max(FLOOR, 100 - max(left, 1.0) / (100 + change) * 100)


def prepared(picture: Frames, size: int) -> Tensor:
    """float [3, size, size]: the whole picture uint8 [H, W, 3], its proportions not kept, as it was trained on."""
    resized = Image.fromarray(picture).resize((size, size), Image.Resampling.LANCZOS)
    pixels = torch.from_numpy(np.array(resized)).permute(2, 0, 1).float() / 255
    mean, std = (torch.tensor(each).view(3, 1, 1) for each in (MEAN, STD))
    return (pixels - mean) / std


class SentencePieces:
    """The tokenizer of an InternLM2 folder: a SentencePiece model, and tokens that stand for themselves."""

    def __init__(self, folder: Path) -> None:
        """Raises `CheckpointError` naming the file that is not there or not as released."""
        try:
            import sentencepiece  # optional
        except ModuleNotFoundError as fault:
            raise UserError("VLAC needs sentencepiece: pip install 'embodied-rm[vlac]'") from fault
        path = folder / "tokenizer.model"
        if not path.is_file():
            raise CheckpointError(f"{path}: not there")
        try:
            self._pieces = sentencepiece.SentencePieceProcessor(model_file=str(path))
        except RuntimeError as fault:
            raise CheckpointError(f"{path}: not a SentencePiece model ({fault})") from None
        self.special = _special(folder)
        self._names = {number: name for name, number in self.special.items()}
        self._split = re.compile("(" + "|".join(map(re.escape, sorted(self.special, key=len, reverse=True))) + ")")

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, behind the one that begins it."""
        ids = [self._pieces.bos_id()]
        for piece in self._split.split(text):
            ids += [self.special[piece]] if piece in self.special else self._pieces.encode(piece)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, without those that stand for themselves."""
        return str(self._pieces.decode([i for i in ids if i not in self._names and i < self._pieces.vocab_size()]))


def _special(folder: Path) -> dict[str, int]:
    """Tokens that stand for themselves, by name."""
    path = folder / "tokenizer_config.json"
    try:
        told = json.loads(path.read_text())["added_tokens_decoder"]
        special = {str(entry["content"]): int(number) for number, entry in told.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as fault:
        raise CheckpointError(f"{path}: does not list its tokens ({fault!r})") from None
    missing = [name for name in (IMAGE, "<img>", "</img>", "<|im_start|>", "<|im_end|>") if name not in special]
    if missing:
        raise CheckpointError(f"{path}: the token {missing[0]} is missing")
    return special


def _ends(path: Path) -> tuple[int, ...]:
    try:
        ends = json.loads(path.read_text())["eos_token_id"]
        return tuple(map(int, ends if isinstance(ends, list) else [ends]))
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise CheckpointError(f"{path}: does not say how an answer ends ({fault!r})") from None


def _number(text: str) -> float | None:
    found = NUMBER.match(text)
    return None if found is None else float(found[1])
