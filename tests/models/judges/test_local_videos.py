"""A video in a prompt is expanded as the libraries of the released models expand it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import tiny_vlm

from embodied_rm.models.judges.chat import ContentPart, Query
from embodied_rm.models.judges.local import LocalChat

IMAGE = np.random.default_rng(0).integers(0, 255, (32, 32, 3), np.uint8)


def video(length: int) -> np.ndarray:
    return np.random.default_rng(length).integers(0, 255, (length, 32, 32, 3), np.uint8)


def user_turn(chat: LocalChat, *parts: ContentPart) -> str:
    """Return the text of the user's turn, with repeated image tokens shortened to one."""
    (ids,) = chat.encode([Query(parts=parts)])["input_ids"].tolist()
    text = re.sub(r"((<\|(video|image)_pad\|>))+", r"\2", chat.processor.tokenizer.decode(ids))
    return text.split("user\n")[1].split("<|im_end|>")[0]


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> LocalChat:
    return LocalChat(tiny_vlm.save_model(tmp_path_factory.mktemp("vlm") / "qwen3", "qwen3_vl"))


def frames(*seconds: float) -> str:
    """As transformers 4.57, with which these models were trained: a time and one pair of tokens per two frames."""
    return "".join(f"<{time:.1f} seconds><|vision_start|><|video_pad|><|vision_end|>" for time in seconds)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((video(4), "go"), frames(0.5, 2.5) + "go"),
        ((video(5), "go"), frames(0.5, 2.5, 4.0) + "go"),
        ((video(2), "then", video(4)), frames(0.5) + "then" + frames(0.5, 2.5)),
        ((IMAGE, video(2), "go"), "<|vision_start|><|image_pad|><|vision_end|>" + frames(0.5) + "go"),
    ],
)
def test_qwen3_has_one_pair_of_vision_tokens_per_frame(
    qwen3: LocalChat, parts: tuple[ContentPart, ...], expected: str
) -> None:
    assert user_turn(qwen3, *parts) == expected


def test_qwen25_has_one_pair_of_vision_tokens_per_video(tmp_path: Path) -> None:
    chat = LocalChat(tiny_vlm.save_model(tmp_path, "qwen2_5_vl"))
    assert user_turn(chat, video(4), "go") == "<|vision_start|><|video_pad|><|vision_end|>go"


def test_frames_keep_their_number_of_pixels(qwen3: LocalChat) -> None:
    assert qwen3.processor.video_processor.cap_pixels_per_frame is False
