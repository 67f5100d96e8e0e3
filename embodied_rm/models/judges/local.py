"""`LocalChat`: a generative vision-language model of `transformers` in this process, loaded from a folder."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import numpy as np
import torch
import transformers
from torch import Tensor

from embodied_rm.errors import CheckpointError
from embodied_rm.models.judges.chat import Answer, BatchedChat, ContentPart, Query
from embodied_rm.models.judges.chat_template import ChatTemplate
from embodied_rm.models.judges.parse import THINKING_TAG, opens_reasoning
from embodied_rm.models.load_pretrained import (
    ADAPTER_FILE,
    LORA_MARK,
    check_missing,
    checkpoint_errors,
    load_pretrained,
    weight_names,
)
from embodied_rm.models.processor_limits import check_image_processor, check_tokenizer
from embodied_rm.text_file import read_text

WEIGHT_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ATTENTION_IMPLEMENTATIONS = ("sdpa", "eager", "flash_attention_2")
"""Attention implementations. The choice changes scores: RynnValue's authors report 0.647 against 0.673."""

PROMPT_END_TOKENS = 16  # of a prompt, in which a template may begin the reasoning of the answer
PIXEL_LIMIT_KEYS = ("min_pixels", "max_pixels", "shortest_edge", "longest_edge")


class LocalChat(BatchedChat):
    """A `ChatModel` in this process. At temperature 0, equal queries get equal answers. It runs no stored code."""

    def __init__(
        self,
        folder: Path,
        *,
        device: str = "cpu",
        dtype: str = "float32",
        attn_implementation: str = "sdpa",
        batch_size: int = 16,
        pixel_limits: tuple[int, int] | None = None,
    ) -> None:
        """Load the model, its processor and its tokenizer; all weights are safetensors.

        `pixel_limits`: minimum and maximum number of pixels per image, where the folder names none. `batch_size`:
        queries per forward pass. `CheckpointError` if the folder does not hold such a model.
        """
        self.folder, self.batch_size = folder, batch_size
        self.processor: Any
        self.model: Any
        self.processor, self.model = load_processor_and_model(folder, dtype, attn_implementation)
        if pixel_limits is not None and not has_pixel_limits(folder):
            self.processor.image_processor.size = {"shortest_edge": pixel_limits[0], "longest_edge": pixel_limits[1]}
        self.chat_template = ChatTemplate(self.processor, folder)
        self.model.to(device).eval()

    @torch.inference_mode()
    def _answer_batch(self, queries: Sequence[Query]) -> list[Answer]:
        inputs = self.encode(queries)
        is_reasoning = opens_reasoning(self.processor.tokenizer.decode(inputs["input_ids"][0, -PROMPT_END_TOKENS:]))
        if queries[0].choices:
            if is_reasoning:
                raise CheckpointError(
                    f"{self.folder}: its chat template begins a reasoning, and its next token is no choice: set "
                    "judge.answer_mode=text"
                )
            logprob_rows = self.choice_logprobs(inputs, queries[0].choices).tolist()
            return [Answer(logprobs=dict(zip(queries[0].choices, row, strict=True))) for row in logprob_rows]
        length = inputs["input_ids"].shape[1]
        temperature = queries[0].temperature
        sampling: dict[str, Any] = (
            {"do_sample": True, "temperature": temperature} if temperature else {"do_sample": False}
        )
        generated = self.model.generate(**inputs, **sampling, num_beams=1, max_new_tokens=queries[0].max_tokens)
        texts = self.processor.batch_decode(generated[:, length:], skip_special_tokens=True)
        reasoning_tag = THINKING_TAG if is_reasoning else ""  # without it, its part would seem to be an answer
        return [Answer(text=reasoning_tag + text) for text in texts]

    def encode(self, queries: Sequence[Query]) -> dict[str, Tensor]:
        """Return the model inputs, padded on the left, so that the next token follows the end of every row."""
        encoding = self.chat_template.encode(
            [chat_messages(query) for query in queries],
            {"padding": True, "padding_side": "left", **video_kwargs(queries)},
            add_generation_prompt=True,
        )
        return {name: tensor.to(self.model.device) for name, tensor in encoding.items()}

    def choice_logprobs(self, inputs: dict[str, Tensor], choices: Sequence[str]) -> Tensor:
        """Return the log-probability of each choice as continuation, float [N, choices], in nats.

        It is that of all spellings of a choice that are one token. A choice without any counts as it is written.
        """
        spellings = [self.spelling_ids(choice) for choice in choices]
        next_logprobs = self.model(**inputs, logits_to_keep=1).logits[:, -1].float().log_softmax(dim=-1)
        columns = [
            next_logprobs[:, ids].logsumexp(dim=1) if ids else self.continuation_logprob(inputs, choice)
            for choice, ids in zip(choices, spellings, strict=True)
        ]
        return torch.stack(columns, dim=1)

    def spelling_ids(self, choice: str) -> list[int]:
        """Return the tokens that are a choice in lower or upper case or capitalized, with or without a space before."""
        words = {spell(choice) for spell in (str, str.lower, str.upper, str.capitalize)}
        encodings = [
            self.processor.tokenizer(space + word, add_special_tokens=False)["input_ids"]
            for word in sorted(words)
            for space in ("", " ")
        ]
        return sorted({ids[0] for ids in encodings if len(ids) == 1})

    def continuation_logprob(self, inputs: dict[str, Tensor], text: str) -> Tensor:
        """Return the log-probability of the tokens of a text as continuation, float [N], in nats."""
        ids = self.processor.tokenizer(text, add_special_tokens=False)["input_ids"]
        rows = len(inputs["input_ids"])
        text_ids = torch.tensor([ids], device=self.model.device).expand(rows, -1)
        extended_inputs = inputs | {"input_ids": torch.cat([inputs["input_ids"], text_ids], dim=1)}
        for name, value in (("attention_mask", 1), ("mm_token_type_ids", 0)):
            if name in inputs:
                extension = torch.full_like(text_ids, value, dtype=inputs[name].dtype)
                extended_inputs[name] = torch.cat([inputs[name], extension], dim=1)
        logits = self.model(**extended_inputs, logits_to_keep=len(ids) + 1).logits[:, :-1].float()
        return logits.log_softmax(dim=-1).gather(2, text_ids[:, :, None]).sum(dim=(1, 2))


def video_kwargs(queries: Sequence[Query]) -> dict[str, Any]:
    """Return the processor arguments for videos: the frame times, and that no frame is dropped."""
    video_metadata = [
        {"fps": query.fps, "total_num_frames": len(part), "frames_indices": list(range(len(part)))}
        for query in queries
        for part in query.parts
        if not isinstance(part, str) and part.ndim == 4
    ]
    return {"video_metadata": video_metadata, "do_sample_frames": False} if video_metadata else {}


def chat_messages(query: Query) -> list[dict[str, Any]]:
    """Return the query as messages of a chat template."""
    messages = [{"role": "system", "content": [{"type": "text", "text": query.system}]}] if query.system else []
    return [*messages, {"role": "user", "content": [_content_part(part) for part in query.parts]}]


def _content_part(part: ContentPart) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    media_type = "image" if part.ndim == 3 else "video"
    # A copy, because the library warns about read-only arrays.
    return {"type": media_type, media_type: np.array(part)}


def load_processor_and_model(folder: Path, dtype: str, attn_implementation: str) -> tuple[Any, Any]:
    """Load the processor and model of a folder; `CheckpointError` if they cannot be loaded."""
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder}: no config.json, so this is not a model of transformers")
    stored = weight_names(folder.glob("*.safetensors"))
    check_no_adapter(folder, stored)
    problem = "cannot be loaded as a vision-language model"
    options: dict[str, Any] = {"dtype": WEIGHT_DTYPES[dtype], "attn_implementation": attn_implementation}
    processor = load_processor(folder, problem)
    model, missing = load_pretrained(transformers.AutoModelForImageTextToText, folder, problem, **options)
    check_missing(str(folder), missing, len(model.state_dict()), stored)
    return processor, model


def check_no_adapter(folder: Path, stored: Iterable[str]) -> None:
    """Raise `CheckpointError` for a LoRA adapter in the folder of a whole model, whose weights it changes.

    `stored`: names of the weights in the folder.
    """
    if (folder / ADAPTER_FILE).exists() or any(LORA_MARK in name for name in stored):
        raise CheckpointError(
            f"{folder}: a LoRA adapter beside the weights of the whole model: merge it into them, with "
            "merge_and_unload() of PEFT, and save the model"
        )


def load_processor(folder: Path, problem: str) -> Any:
    """Load the processor of a folder; `CheckpointError` with the problem if it cannot be loaded."""
    check_tokenizer(folder)
    with checkpoint_errors(f"{folder}: {problem}"):
        processor = transformers.AutoProcessor.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if hasattr(getattr(processor, "video_processor", None), "cap_pixels_per_frame"):
        processor.video_processor.cap_pixels_per_frame = False  # later versions of the library would shrink frames
    for part in ("image_processor", "video_processor"):
        check_image_processor(getattr(processor, part, None), folder)
    return processor


def has_pixel_limits(folder: Path) -> bool:
    """Return whether a folder names the number of pixels of its images."""
    for name in ("preprocessor_config.json", "processor_config.json"):
        if (folder / name).is_file():
            with checkpoint_errors(f"{folder / name}: not the configuration of a processor"):
                config = json.loads(read_text(folder / name))
                config = config.get("image_processor") or config
            if any(key in stated for stated in (config, config.get("size") or {}) for key in PIXEL_LIMIT_KEYS):
                return True
    return False
