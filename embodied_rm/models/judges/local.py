"""`LocalChat`: a generative vision-language model of `transformers` in this process, from a folder that holds it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import numpy as np
import torch
import transformers
from torch import Tensor

from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.models.judges.chat import Answer, ContentPart, Query
from embodied_rm.models.transformers_towers import LOAD_ERRORS

WEIGHT_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ATTENTION_IMPLEMENTATIONS = ("sdpa", "eager", "flash_attention_2")
"""How attention is computed. It moves what a model says: RynnValue's authors report 0.647 against 0.673."""


class LocalChat:
    """A `Chat`. Writes greedily, so that a moment asked about twice is answered alike; nothing in the folder is run."""

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
        """Raises `CheckpointError` naming the folder when it holds no such model, its processor and tokenizer, and
        every one of its weights in safetensors.

        `pixels`: the fewest and the most of an image; None: as the processor in the folder has it.
        """
        self.folder, self.batch_size = folder, batch_size
        self.processor: Any
        self.model: Any
        self.processor, self.model = load_processor_and_model(folder, dtype, attn_implementation)
        if pixel_limits is not None:
            self.processor.image_processor.size = {"shortest_edge": pixel_limits[0], "longest_edge": pixel_limits[1]}
        self.model.to(device).eval()

    def ask(self, queries: Sequence[Query]) -> list[Answer]:
        """One answer each, in order. Raises `UserError` for queries that the model has no words or no room for."""
        order = sorted(range(len(queries)), key=lambda i: _batch_key(queries[i]))
        answers: dict[int, Answer] = {}
        for _, group in groupby(order, key=lambda i: _batch_key(queries[i])):
            members = list(group)
            for start in range(0, len(members), self.batch_size):
                rows = members[start : start + self.batch_size]
                answers.update(zip(rows, self._answer_batch([queries[i] for i in rows]), strict=True))
        return [answers[i] for i in range(len(queries))]

    @torch.inference_mode()
    def _answer_batch(self, queries: Sequence[Query]) -> list[Answer]:
        inputs = self.encode(queries)
        if queries[0].choices:
            columns = [self.choice_logprob(inputs, choice) for choice in queries[0].choices]
            logprob_rows = torch.stack(columns, dim=1).tolist()
            return [Answer(logprobs=dict(zip(queries[0].choices, row, strict=True))) for row in logprob_rows]
        length = inputs["input_ids"].shape[1]
        generated = self.model.generate(**inputs, do_sample=False, num_beams=1, max_new_tokens=queries[0].max_tokens)
        texts = self.processor.batch_decode(generated[:, length:], skip_special_tokens=True)
        return [Answer(text=text) for text in texts]

    def encode(self, queries: Sequence[Query]) -> dict[str, Tensor]:
        """What the model is given, padded at the left: what it says next stands at the end of every row."""
        encoding = self.processor.apply_chat_template(
            [chat_messages(query) for query in queries],
            tokenize=True,
            add_generation_prompt=True,
            return_dict=True,
            return_tensors="pt",
            processor_kwargs={"padding": True, "padding_side": "left", **video_kwargs(queries)},
        )
        return {name: tensor.to(self.model.device) for name, tensor in encoding.items()}

    def choice_logprob(self, inputs: dict[str, Tensor], choice: str) -> Tensor:
        """log P of the words of `choice` as the next ones, float [N], in nats."""
        ids = self.processor.tokenizer(choice, add_special_tokens=False)["input_ids"]
        rows = len(inputs["input_ids"])
        choice_ids = torch.tensor([ids], device=self.model.device).expand(rows, -1)
        extended_inputs = inputs | {"input_ids": torch.cat([inputs["input_ids"], choice_ids], dim=1)}
        for name, value in (("attention_mask", 1), ("mm_token_type_ids", 0)):
            if name in inputs:
                extension = torch.full_like(choice_ids, value, dtype=inputs[name].dtype)
                extended_inputs[name] = torch.cat([inputs[name], extension], dim=1)
        logits = self.model(**extended_inputs, logits_to_keep=len(ids) + 1).logits[:, :-1].float()
        return logits.log_softmax(dim=-1).gather(2, choice_ids[:, :, None]).sum(dim=(1, 2))


def _batch_key(query: Query) -> tuple[str, tuple[str, ...], int]:
    """What queries that are answered together have in common."""
    return query.adapter, query.choices, query.max_tokens


def video_kwargs(queries: Sequence[Query]) -> dict[str, Any]:
    """What a processor must know of videos: when their frames were taken, and that all of them are to be seen."""
    video_metadata = [
        {"fps": query.fps, "total_num_frames": len(part), "frames_indices": list(range(len(part)))}
        for query in queries
        for part in query.parts
        if not isinstance(part, str) and part.ndim == 4
    ]
    return {"video_metadata": video_metadata, "do_sample_frames": False} if video_metadata else {}


def chat_messages(query: Query) -> list[dict[str, Any]]:
    """The query as turns of a chat template."""
    messages = [{"role": "system", "content": [{"type": "text", "text": query.system}]}] if query.system else []
    return [*messages, {"role": "user", "content": [_content_part(part) for part in query.parts]}]


def _content_part(part: ContentPart) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    media_type = "image" if part.ndim == 3 else "video"
    return {
        "type": media_type,
        media_type: np.array(part),
    }  # a copy: the library warns of images that it could not write to


def load_processor_and_model(folder: Path, dtype: str, attn_implementation: str) -> tuple[Any, Any]:
    """Processor and model of a folder. Raises `CheckpointError` naming it and its fault."""
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder}: no config.json, so it holds no model of transformers")
    model: Any
    loading_info: Any
    try:
        processor = transformers.AutoProcessor.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        model, loading_info = transformers.AutoModelForImageTextToText.from_pretrained(  # type: ignore[misc]
            folder,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            dtype=WEIGHT_DTYPES[dtype],
            attn_implementation=attn_implementation,
            output_loading_info=True,
        )
    except (*LOAD_ERRORS, ImportError) as error:
        raise CheckpointError(f"{folder}: not a vision-language model that can be loaded ({error})") from None
    missing_keys = sorted(loading_info["missing_keys"])
    if missing_keys:
        raise CheckpointError(f"{folder}: {len(missing_keys)} of its weights are missing, {missing_keys[0]} first")
    if processor.tokenizer.chat_template is None and getattr(processor, "chat_template", None) is None:
        raise UserError(f"{folder}: has no chat template, so it is not known how it is asked")
    return processor, model
