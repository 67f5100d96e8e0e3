"""Tiny random vision-language models, saved in the format of released models, and their training."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from embodied_rm.models.judges import prompts, released_prompts

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
CHAT_TEMPLATE = (
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
"""The part of the chat templates of the Qwen-VL families that judges use."""
TEXT_CONFIG = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 4096,
}
VISION_CONFIG = {"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 32}


def make_tokenizer(special_tokens: tuple[str, ...] = SPECIAL_TOKENS, vocab_size: int = 1500) -> Any:
    """Train a byte-level BPE tokenizer on the prompts, with single digits and the special tokens."""
    tokenizer = Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TOKENIZER_CORPUS, trainer)
    hf_tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        additional_special_tokens=list(special_tokens),
    )
    hf_tokenizer.chat_template = CHAT_TEMPLATE
    return hf_tokenizer


TOKENIZER_CORPUS = [
    text
    for module in (prompts, released_prompts)
    for name, text in vars(module).items()
    if name.isupper() and isinstance(text, str)
]
"""Prompts of the judges, without other text of their modules."""


def vision_token_ids(tokenizer: Any) -> dict[str, Any]:
    """Return the token ids of a Qwen-VL configuration."""
    names = {"image": "image_pad", "video": "video_pad", "vision_start": "vision_start", "vision_end": "vision_end"}
    return {f"{name}_token_id": tokenizer.convert_tokens_to_ids(f"<|{token}|>") for name, token in names.items()}


def make_qwen25() -> tuple[Any, Any]:
    """Create model and processor of the Qwen2.5-VL family, for images of up to 56x56."""
    tokenizer = make_tokenizer()
    rope = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}
    config = transformers.Qwen2_5_VLConfig(
        text_config={**TEXT_CONFIG, "vocab_size": len(tokenizer), "rope_parameters": rope, **end_token_ids(tokenizer)},
        vision_config={
            **VISION_CONFIG,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "window_size": 56,
            "fullatt_block_indexes": [1],
        },
        **vision_token_ids(tokenizer),
    )
    processor = transformers.Qwen2_5_VLProcessor(
        image_processor=transformers.Qwen2VLImageProcessor(min_pixels=28 * 28, max_pixels=56 * 56),
        tokenizer=tokenizer,
        video_processor=transformers.Qwen2VLVideoProcessor(),
        chat_template=CHAT_TEMPLATE,
    )
    return transformers.Qwen2_5_VLForConditionalGeneration(config), processor


def make_qwen3(
    special_tokens: tuple[str, ...] = SPECIAL_TOKENS,
    text_config: Mapping[str, Any] | None = None,
    vision_config: Mapping[str, Any] | None = None,
    patch_size: int = 16,
) -> tuple[Any, Any]:
    """Create model and processor of the Qwen3-VL family, for images of up to 64x64; configs override the sizes."""
    tokenizer = make_tokenizer(special_tokens)
    rope = {"rope_type": "default", "mrope_section": [4, 2, 2], "rope_theta": 10000.0}
    base_text_config = {**TEXT_CONFIG, "head_dim": 16, "vocab_size": len(tokenizer), "rope_parameters": rope}
    config = transformers.Qwen3VLConfig(
        text_config={**base_text_config, **(text_config or {}), **end_token_ids(tokenizer)},
        vision_config={
            **VISION_CONFIG,
            **(vision_config or {}),
            "patch_size": patch_size,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0],
        },
        **vision_token_ids(tokenizer),
    )
    processor = transformers.Qwen3VLProcessor(
        image_processor=transformers.Qwen2VLImageProcessor(
            patch_size=patch_size, min_pixels=32 * 32, max_pixels=64 * 64
        ),
        tokenizer=tokenizer,
        video_processor=transformers.Qwen3VLVideoProcessor(),
        chat_template=CHAT_TEMPLATE,
    )
    return transformers.Qwen3VLForConditionalGeneration(config), processor


def end_token_ids(tokenizer: Any) -> dict[str, Any]:
    """Return the token ids of the end of a text."""
    return {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}


JUDGE_LEARNING_RATE = 7e-4  # of `train_small_judge`; with 2e-3, some judges of clips and videos learned nothing
EASY_SHARE = 0.5  # share of its steps, the first ones, whose questions are easy

MODEL_FAMILIES = {"qwen2_5_vl": make_qwen25, "qwen3_vl": make_qwen3}


def save_model(folder: Path, family: str = "qwen2_5_vl", seed: int = 0, answer: str | None = None) -> Path:
    """Save a random model of a family; with `answer`, one trained to always give that answer."""
    torch.manual_seed(seed)
    model, processor = MODEL_FAMILIES[family]()
    if answer is not None:
        train_to_answer(model, processor, answer)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def train_to_answer(model: Any, processor: Any, answer: str, num_steps: int = 120) -> None:
    """Train a model to give one answer to any text before and after two images."""
    rng = np.random.default_rng(0)
    texts = [TOKENIZER_CORPUS[i][-300:] for i in rng.choice(len(TOKENIZER_CORPUS), 8)]
    frames = rng.integers(0, 255, (len(texts), 2, 32, 32, 3), dtype=np.uint8)
    conversations = [
        (make_conversation(texts[i - 1] if i % 2 else "", pair, text), answer)
        for i, (text, pair) in enumerate(zip(texts, frames, strict=True))
    ]
    loss = train_steps(model, processor, conversations, num_steps, 1e-2)
    assert loss < 0.1, f"the model did not learn to answer {answer!r}: loss {loss}"


def train_small_judge(folder: Path, draw_conversation: DrawConversation, num_steps: int, batch_size: int) -> Path:
    """Train a Qwen3-VL from random weights on conversations drawn anew for every step, and save it; once per folder."""
    if (folder / "config.json").exists():
        return folder
    torch.manual_seed(0)
    text_config = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4}
    vision_config = {"hidden_size": 64, "intermediate_size": 128, "num_heads": 4, "depth": 2, "out_hidden_size": 128}
    model, processor = make_qwen3(
        text_config={**text_config, "num_key_value_heads": 2, "head_dim": 32}, vision_config=vision_config, patch_size=8
    )
    rng, losses = np.random.default_rng(0), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=JUDGE_LEARNING_RATE, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, JUDGE_LEARNING_RATE, num_steps, pct_start=0.1)
    for step in range(num_steps):
        turns = [draw_conversation(rng, step < EASY_SHARE * num_steps) for _ in range(batch_size)]
        loss = answer_loss(model, encode_conversations(processor, turns))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % 100 == 99:
            logging.info("judge: step %d of %d, loss %.3f", step + 1, num_steps, np.mean(losses[-100:]))
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def answer_loss(model: Any, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Return the loss of `encode_conversations`, without computing what the model would say before the answers."""
    labels = inputs["labels"]
    num_kept = labels.shape[1] - int((labels != -100).any(dim=0).nonzero()[0]) + 1  # a token is predicted at the last
    loss: torch.Tensor = model(**{**inputs, "labels": labels[:, -num_kept:]}, logits_to_keep=num_kept).loss
    return loss


def make_conversation(header: str, images: Any, text: str) -> list[dict[str, Any]]:
    """Return a conversation of one turn with a header, images and a text."""
    image_parts = [{"type": "image", "image": image} for image in images]
    return [
        {"role": "user", "content": [{"type": "text", "text": header}, *image_parts, {"type": "text", "text": text}]}
    ]


Conversation = tuple[list[dict[str, Any]], str]
"""A conversation and its answer."""
Conversations = list[Conversation]
DrawConversation = Callable[[np.random.Generator, bool], Conversation]
"""Draws a conversation; the second argument is whether an easy one is wanted."""


def train_steps(
    model: Any, processor: Any, conversations: Conversations, num_steps: int, learning_rate: float
) -> float:
    """Train on all conversations at every step; return the last loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    inputs = encode_conversations(processor, conversations)
    last_loss = float("inf")
    for _ in range(num_steps):
        step_loss = model(**inputs).loss
        optimizer.zero_grad()
        step_loss.backward()
        optimizer.step()
        last_loss = step_loss.item()
    return last_loss


def encode_conversations(processor: Any, conversations: Conversations) -> dict[str, torch.Tensor]:
    """Return a batch of inputs whose loss is the cross-entropy of the answers."""
    texts = [
        processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        for messages, _ in conversations
    ]
    images = [
        [part["image"] for message in messages for part in message["content"] if part["type"] == "image"]
        for messages, _ in conversations
    ]
    full_texts = [f"{text}{answer}<|im_end|>" for text, (_, answer) in zip(texts, conversations, strict=True)]
    inputs = processor(text=full_texts, images=images, padding=True, padding_side="left", return_tensors="pt")
    labels = torch.full_like(inputs["input_ids"], -100)
    for row, (_, answer) in enumerate(conversations):
        length = len(processor.tokenizer(f"{answer}<|im_end|>", add_special_tokens=False)["input_ids"])
        labels[row, -length:] = inputs["input_ids"][row, -length:]
    return {**inputs, "labels": labels}
