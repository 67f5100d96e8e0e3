"""Vision-language models of a few thousand random weights, saved as released ones are, and how one is taught."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from embodied_rm.models.judges import prompts, released_prompts

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
TEMPLATE = (
    "{% set count = namespace(value=0) %}"
    "{% for turn in messages %}<|im_start|>{{ turn['role'] }}\n"
    "{% if turn['content'] is string %}{{ turn['content'] }}{% else %}"
    "{% for part in turn['content'] %}"
    "{% if part['type'] == 'image' %}{% set count.value = count.value + 1 %}"
    "{% if add_vision_id %}Picture {{ count.value }}: {% endif %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part['type'] == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""What the chat templates of the Qwen-VL families make of turns, so far as judges use it."""
TEXT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 4096,
}
EYE = {"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 32}


def tokenizer_of(special: tuple[str, ...] = SPECIAL, size: int = 1500) -> Any:
    """Bytes, and the commonest pieces of what models are told; digits one by one. And the special ones."""
    tokenizer = Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(SAYINGS, trainer)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        additional_special_tokens=list(special),
    )
    fast.chat_template = TEMPLATE
    return fast


SAYINGS = [text for module in (prompts, released_prompts) for text in vars(module).values() if isinstance(text, str)]
"""What judges are told."""


def ids(tokenizer: Any) -> dict[str, Any]:
    """The token ids that a Qwen-VL's description names."""
    names = {"image": "image_pad", "video": "video_pad", "vision_start": "vision_start", "vision_end": "vision_end"}
    return {f"{name}_token_id": tokenizer.convert_tokens_to_ids(f"<|{token}|>") for name, token in names.items()}


def qwen25() -> tuple[Any, Any]:
    """Model and processor of the Qwen2.5-VL family, pictures of up to 56x56."""
    tokenizer = tokenizer_of()
    rope = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}
    config = transformers.Qwen2_5_VLConfig(
        text_config={**TEXT, "vocab_size": len(tokenizer), "rope_parameters": rope, **ends(tokenizer)},
        vision_config={
            **EYE,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "window_size": 56,
            "fullatt_block_indexes": [1],
        },
        **ids(tokenizer),
    )
    processor = transformers.Qwen2_5_VLProcessor(
        image_processor=transformers.Qwen2VLImageProcessor(min_pixels=28 * 28, max_pixels=56 * 56),
        tokenizer=tokenizer,
        video_processor=transformers.Qwen2VLVideoProcessor(),
        chat_template=TEMPLATE,
    )
    return transformers.Qwen2_5_VLForConditionalGeneration(config), processor


def qwen3(
    special: tuple[str, ...] = SPECIAL,
    text: Mapping[str, Any] | None = None,
    eye: Mapping[str, Any] | None = None,
    patch: int = 16,
) -> tuple[Any, Any]:
    """Model and processor of the Qwen3-VL family, pictures of up to 64x64; `text` and `eye`: other sizes."""
    tokenizer = tokenizer_of(special)
    rope = {"rope_type": "default", "mrope_section": [4, 2, 2], "rope_theta": 10000.0}
    known = {**TEXT, "head_dim": 16, "vocab_size": len(tokenizer), "rope_parameters": rope}
    config = transformers.Qwen3VLConfig(
        text_config={**known, **(text or {}), **ends(tokenizer)},
        vision_config={
            **EYE,
            **(eye or {}),
            "patch_size": patch,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0],
        },
        **ids(tokenizer),
    )
    processor = transformers.Qwen3VLProcessor(
        image_processor=transformers.Qwen2VLImageProcessor(patch_size=patch, min_pixels=32 * 32, max_pixels=64 * 64),
        tokenizer=tokenizer,
        video_processor=transformers.Qwen3VLVideoProcessor(),
        chat_template=TEMPLATE,
    )
    return transformers.Qwen3VLForConditionalGeneration(config), processor


def ends(tokenizer: Any) -> dict[str, Any]:
    """How a text ends."""
    return {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}


FAMILIES = {"qwen2_5_vl": qwen25, "qwen3_vl": qwen3}


def saved(folder: Path, family: str = "qwen2_5_vl", seed: int = 0, says: str | None = None) -> Path:
    """A random model of a family in a folder; with `says`, one that has learned to say just that, whatever it is asked
    about pictures."""
    torch.manual_seed(seed)
    model, processor = FAMILIES[family]()
    if says is not None:
        teach_to_say(model, processor, says)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def teach_to_say(model: Any, processor: Any, text: str, updates: int = 60) -> None:
    """Until that is what it says of two pictures, whatever stands before and behind them."""
    rng = np.random.default_rng(0)
    asked = [SAYINGS[i] for i in rng.choice(len(SAYINGS), 6)]
    frames = rng.integers(0, 255, (6, 2, 32, 32, 3), dtype=np.uint8)
    turns = [(about(sentence[-300:], pair), text) for sentence, pair in zip(asked, frames, strict=True)]
    loss = teach(model, processor, turns, updates, 1e-2)
    assert loss < 0.1, f"it has not learned to say {text!r}: {loss}"


def about(sentence: str, pictures: Any) -> list[dict[str, Any]]:
    """A conversation of one turn: pictures, and a sentence."""
    shown = [{"type": "image", "image": picture} for picture in pictures]
    return [{"role": "user", "content": [*shown, {"type": "text", "text": sentence}]}]


Turns = list[tuple[list[dict[str, Any]], str]]
"""Conversations, and how each is to be answered."""


def teach(model: Any, processor: Any, turns: Turns, updates: int, rate: float) -> float:
    """Learn to answer conversations as they should be, all of them at every update; the last loss."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate)
    last = float("inf")
    for _ in range(updates):
        now = loss(model, processor, turns)
        optimiser.zero_grad()
        now.backward()
        optimiser.step()
        last = now.item()
    return last


def loss(model: Any, processor: Any, turns: Turns) -> torch.Tensor:
    """Cross-entropy of the answers that the conversations should have."""
    texts = [processor.apply_chat_template(c, tokenize=False, add_generation_prompt=True) for c, _ in turns]
    pictures = [[part["image"] for turn in c for part in turn["content"] if part["type"] == "image"] for c, _ in turns]
    whole = [f"{text}{answer}<|im_end|>" for text, (_, answer) in zip(texts, turns, strict=True)]
    inputs = processor(text=whole, images=pictures, padding=True, padding_side="left", return_tensors="pt")
    labels = torch.full_like(inputs["input_ids"], -100)
    for row, (_, answer) in enumerate(turns):
        length = len(processor.tokenizer(f"{answer}<|im_end|>", add_special_tokens=False)["input_ids"])
        labels[row, -length:] = inputs["input_ids"][row, -length:]
    return model(**inputs, labels=labels).loss
