"""VLAC: the change of progress between two images, and whether a task is done."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.models.judges import released_prompts as prompts
from embodied_rm.models.judges.chat import Answer, BatchedChat, Query
from embodied_rm.models.judges.judge_state import EpisodeContext
from embodied_rm.models.judges.local import WEIGHT_DTYPES
from embodied_rm.models.judges.questions import CameraQuestion, ParsedAnswer, interleave_images
from embodied_rm.models.load_pretrained import checkpoint_errors
from embodied_rm.models.released.answer_readers import read_number
from embodied_rm.models.released.internvl_weights import load_internvl
from embodied_rm.text_file import read_text
from embodied_rm.types import Frames

IMAGE_MEAN, IMAGE_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGE_TOKEN, TURN_END_TOKEN = "<IMG_CONTEXT>", "<|im_end|>"
DONE_THRESHOLD = 0.9  # minimum "done" output of a success, as in the authors' code
FLOOR_PERCENT, MIDPOINT_PERCENT = 10.0, 50.0  # constants of `apply_change`


class VlacChat(BatchedChat):
    """A `ChatModel` with VLAC as released. It decodes greedily, as the authors do."""

    def __init__(
        self,
        folder: Path,
        *,
        device: str = "cpu",
        dtype: str = "float32",
        attn_implementation: str = "sdpa",
        batch_size: int = 16,
    ) -> None:
        """Load the model; `CheckpointError` if a file is not as released, `UserError` without sentencepiece."""
        self.batch_size, self._device = batch_size, device
        self.tokenizer = VlacTokenizer(folder)
        image_token_id = self.tokenizer.special_tokens[IMAGE_TOKEN]
        self.model: Any = load_internvl(folder, image_token_id, WEIGHT_DTYPES[dtype], attn_implementation)
        self.model.to(device).eval()
        self._eos_token_ids = _read_eos_token_ids(
            folder / "generation_config.json", self.tokenizer.special_tokens[TURN_END_TOKEN]
        )

    @torch.inference_mode()
    def _answer_batch(self, queries: Sequence[Query]) -> list[Answer]:
        rows = [self.tokenizer.encode(self.render_prompt(query)) for query in queries]
        length = max(map(len, rows))
        ids = torch.zeros(len(rows), length, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for row, tokens in enumerate(rows):
            ids[row, length - len(tokens) :], mask[row, length - len(tokens) :] = torch.tensor(tokens), 1
        images = [part for query in queries for part in query.parts if not isinstance(part, str)]
        size = self.model.config.vision_config.image_size[0]
        pixels = torch.stack([preprocess_image(image, size) for image in images])
        generated = self.model.generate(
            input_ids=ids.to(self._device),
            attention_mask=mask.to(self._device),
            pixel_values=pixels.to(self.model.dtype).to(self._device),
            do_sample=False,
            max_new_tokens=max(query.max_tokens for query in queries),
            eos_token_id=list(self._eos_token_ids),
            pad_token_id=self._eos_token_ids[0],
        )
        return [Answer(text=self.tokenizer.decode(row[length:].tolist())) for row in generated]

    def render_prompt(self, query: Query) -> str:
        """Return the conversation as text, with one image token per embedding of an image."""
        num_image_tokens = self.model.config.image_seq_length
        image_text = f"<img>{IMAGE_TOKEN * num_image_tokens}</img>\n"
        user_text = "".join(part if isinstance(part, str) else image_text for part in query.parts)
        return (
            f"<|im_start|>system\n{query.system}<|im_end|>\n"
            f"<|im_start|>user\n{user_text}<|im_end|>\n"
            "<|im_start|>assistant\n"
        )


class VlacQuestion(CameraQuestion):
    """The change since the last scored frame, and whether the task is done, of one camera."""

    predicts_success = True
    uses_previous_frame = True

    def build_queries(self, context: EpisodeContext) -> tuple[Query, ...]:
        task, current = context.instruction, self.camera_image(context.current, context)
        before = self.camera_image(context.previous, context)
        if context.goal is None:
            done_parts = interleave_images(prompts.VLAC_DONE_PROMPT, task, [current])
        else:
            goal = self.camera_image(context.goal, context)
            done_parts = interleave_images(prompts.VLAC_GOAL_DONE_PROMPT, task, [goal, current])
        part_groups = interleave_images(prompts.VLAC_CRITIC_PROMPT, task, [before, current]), done_parts
        return tuple(Query(parts=tuple(p), system=prompts.VLAC_SYSTEM_PROMPT, max_tokens=16) for p in part_groups)

    def parse_answers(self, answers: Sequence[Answer], context: EpisodeContext) -> ParsedAnswer | None:
        change, done = (read_number(answer.text or "") for answer in answers)
        if change is None or done is None or not -100 <= change <= 100 or not 0 <= done <= 1:
            return None
        return ParsedAnswer(apply_change(100 * context.potential, change) / 100, done if done > DONE_THRESHOLD else 0.0)


def apply_change(value: float, change: float) -> float:
    """Return the progress in [0, 100] % after a change in [-100, 100] %.

    It is the authors' `mix_f`, their only recursion that stays in [0, 100]. A positive change is a share of the
    remaining progress. A negative change at or below `MIDPOINT_PERCENT` is a share of the progress so far; above it,
    the result is at least `FLOOR_PERCENT`.
    """
    if change > 0:
        return value + (100 - value) * change / 100
    if value <= MIDPOINT_PERCENT:
        return value + value * change / 100
    remaining = 100 - value
    return FLOOR_PERCENT if change <= -100 else max(FLOOR_PERCENT, 100 - max(remaining, 1.0) / (100 + change) * 100)


def preprocess_image(image: Frames, size: int) -> Tensor:
    """Resize an image uint8 [H, W, 3] to a normalized float [3, size, size], without keeping its aspect ratio."""
    resized = Image.fromarray(image).resize((size, size), Image.Resampling.LANCZOS)
    pixels = torch.from_numpy(np.array(resized)).permute(2, 0, 1).float() / 255
    mean, std = (torch.tensor(channel_values).view(3, 1, 1) for channel_values in (IMAGE_MEAN, IMAGE_STD))
    return (pixels - mean) / std


class VlacTokenizer:
    """The tokenizer of an InternLM2 folder: a SentencePiece model and special tokens."""

    def __init__(self, folder: Path) -> None:
        """Load the tokenizer; the errors are those of `VlacChat`."""
        try:
            import sentencepiece  # optional
        except ModuleNotFoundError as error:
            raise UserError("VLAC needs sentencepiece: pip install 'embodied-rm[vlac]'") from error
        path = folder / "tokenizer.model"
        if not path.is_file():
            raise CheckpointError(f"{path}: missing")
        with checkpoint_errors(f"{path}: not a SentencePiece model"):
            self._processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        self.special_tokens = _read_special_tokens(folder)
        longest_first = sorted(self.special_tokens, key=len, reverse=True)
        self._special_pattern = re.compile(f"({'|'.join(map(re.escape, longest_first))})")

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, after the token of its beginning."""
        ids = [self._processor.bos_id()]
        for piece in self._special_pattern.split(text):
            ids += [self.special_tokens[piece]] if piece in self.special_tokens else self._processor.encode(piece)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of tokens, without special tokens."""
        special, vocab_size = set(self.special_tokens.values()), self._processor.vocab_size()
        return str(self._processor.decode([i for i in ids if i not in special and i < vocab_size]))


def _read_special_tokens(folder: Path) -> dict[str, int]:
    """Return special token -> id."""
    path = folder / "tokenizer_config.json"
    with checkpoint_errors(f"{path}: does not list its tokens"):
        entries = json.loads(read_text(path))["added_tokens_decoder"]
        special = {str(entry["content"]): int(token_id) for token_id, entry in entries.items()}
    missing = [name for name in (IMAGE_TOKEN, "<img>", "</img>", "<|im_start|>", TURN_END_TOKEN) if name not in special]
    if missing:
        raise CheckpointError(f"{path}: the token {missing[0]} is missing")
    return special


def _read_eos_token_ids(path: Path, turn_end_id: int) -> tuple[int, ...]:
    """Return the tokens that end an answer: those of the file, else the one that ends a turn of the conversation."""
    if not path.is_file():
        return (turn_end_id,)
    with checkpoint_errors(f"{path}: no valid eos_token_id"):
        eos_token_id = json.loads(read_text(path)).get("eos_token_id")
        eos_token_ids = eos_token_id if isinstance(eos_token_id, list) else [eos_token_id]
        return (turn_end_id,) if eos_token_id is None else tuple(map(int, eos_token_ids))
