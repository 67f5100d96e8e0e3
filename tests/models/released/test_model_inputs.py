"""The token ids that each released model gets, against its prompt written out by hand, and the logits on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import numpy as np
import peft
import pytest
import sentencepiece
import tiny_vlm
import torch
import transformers

from embodied_rm.models.judges import released_prompts as prompts
from embodied_rm.models.judges.chat import Query
from embodied_rm.models.judges.frame_history import FrameHistory, MultiViewFrame
from embodied_rm.models.judges.judge_state import EpisodeContext
from embodied_rm.models.judges.local import LocalChat
from embodied_rm.models.judges.questions import Question
from embodied_rm.models.released.lrm import ADAPTER_NAMES, LrmChat, LrmQuestion
from embodied_rm.models.released.robo_dopamine import PIXEL_LIMITS, RoboDopamineQuestion
from embodied_rm.models.released.robo_reward import RoboRewardQuestion
from embodied_rm.models.released.robometer import RobometerChat, RobometerQuestion
from embodied_rm.models.released.vlac import VlacChat, VlacQuestion

Layout = Callable[[str], dict[str, Path]]
TASK = "put the cube into the drawer"
VIEWS = ("front", "left", "right")
MEDIA = ((1, "image"), (2, "video"))  # types of tokens
USER, ANSWER = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"


def make_context(length: int, num_views: int, goal: bool = False) -> EpisodeContext:
    """An episode of noise at its frame `length - 1`; the frame before is the last scored one."""
    images = np.random.default_rng(length).integers(0, 255, (length + 1, num_views, 32, 32, 3), np.uint8)
    frames = [MultiViewFrame(image, np.ones(num_views, bool)) for image in images]
    history = FrameHistory(capacity=64)
    for frame in frames[: length - 1]:
        history = history.append(frame)
    return EpisodeContext(
        instruction=TASK,
        view_names=VIEWS[:num_views],
        history=history,
        first=frames[0],
        previous=frames[max(length - 2, 0)],
        current=frames[length - 1],
        goal=frames[length] if goal else None,
    )


def images_of(query: Query) -> list[np.ndarray]:
    return [part for part in query.parts if not isinstance(part, str)]


def image_text(num_tokens: int, kind: str = "image") -> str:
    return f"<|vision_start|>{f'<|{kind}_pad|>' * num_tokens}<|vision_end|>"


def fill(prompt: str, num_tokens: int, *, strip: bool = False) -> str:
    """Write the instruction and the images of a prompt out."""
    texts = [text.replace("{instruction}", TASK) for text in prompt.split("<image>")]
    return image_text(num_tokens).join(text.strip() if strip else text for text in texts)


@torch.inference_mode()
def check(chat: LocalChat, model: Any, queries: Sequence[Query], texts: Sequence[str]) -> None:
    """Check ids and pixels of queries in one batch, and the logits of the next token against another model."""
    processor, encoded = chat.processor, chat.encode(queries)
    next_logits = chat.model(**encoded).logits[:, -1]
    for row, (query, text) in enumerate(zip(queries, texts, strict=True)):
        ids = processor.tokenizer(text, add_special_tokens=False)["input_ids"]
        mask = encoded["attention_mask"][row].bool()
        assert encoded["input_ids"][row][mask].tolist() == ids
        single = chat.encode([query])
        kind = "pixel_values_videos" if "pixel_values_videos" in single else "pixel_values"
        grid = "video_grid_thw" if kind == "pixel_values_videos" else "image_grid_thw"
        pixels = reference_pixels(processor, query, kind)
        assert torch.equal(single[kind], pixels)
        token_types = {processor.tokenizer.convert_tokens_to_ids(f"<|{name}_pad|>"): i for i, name in MEDIA}
        types = torch.tensor([[token_types.get(token, 0) for token in ids]])
        inputs = {"input_ids": torch.tensor([ids]), kind: pixels, grid: single[grid], "mm_token_type_ids": types}
        assert (model(**inputs).logits[0, -1] - next_logits[row]).abs().max() <= 1e-5


def reference_pixels(processor: Any, query: Query, kind: str) -> torch.Tensor:
    """The patches of images, each by itself, or of a video."""
    if kind == "pixel_values_videos":
        (video,) = images_of(query)
        done = processor.video_processor(videos=[np.array(video)], do_sample_frames=False, return_tensors="pt")
        return done["pixel_values_videos"]
    parts = [processor.image_processor(images=[np.array(image)], return_tensors="pt") for image in images_of(query)]
    return torch.cat([part["pixel_values"] for part in parts])


@pytest.mark.parametrize("goal", [False, True])
def test_robo_dopamine(layout: Layout, goal: bool) -> None:
    folder = layout("robo_dopamine")["folder"]
    queries = RoboDopamineQuestion(VIEWS).build_queries(make_context(3, 3, goal))
    assert len(queries) == (3 if goal else 2) and all(len(images_of(query)) == 8 for query in queries)
    model = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(folder).eval()
    text = USER + fill(prompts.ROBO_DOPAMINE_PROMPT, 1) + ANSWER
    check(LocalChat(folder), model, queries, [text] * len(queries))


@pytest.mark.parametrize(("family", "patches"), [("qwen2_5_vl", (16, 22)), ("qwen3_vl", (14, 20))])
def test_robo_dopamine_images_have_the_patches_of_its_training(
    tmp_path: Path, family: str, patches: tuple[int, int]
) -> None:
    """480 x 640 pixels within 12,544 to 76,800, by the processor of both families."""
    chat = LocalChat(tiny_vlm.save_model(tmp_path, family))
    chat.processor.image_processor.size = {"shortest_edge": PIXEL_LIMITS[0], "longest_edge": PIXEL_LIMITS[1]}
    image = np.random.default_rng(0).integers(0, 255, (480, 640, 3), np.uint8)
    assert chat.encode([Query(parts=(image, "go"))])["image_grid_thw"].tolist() == [[1, *patches]]


def test_robo_reward(layout: Layout) -> None:
    """A time and the tokens of two frames each; the last frame of an odd number is repeated."""
    folder = layout("robo_reward")["folder"]
    queries = [query for length in (1, 4, 5) for query in RoboRewardQuestion().build_queries(make_context(length, 1))]
    times = [(0.5,), (0.5, 2.5), (0.5, 2.5, 4.0)]
    task = prompts.ROBO_REWARD_PROMPT.replace("{instruction}", TASK)
    model = transformers.Qwen3VLForConditionalGeneration.from_pretrained(folder).eval()
    chat = LocalChat(folder)
    grids = [chat.encode([query])["video_grid_thw"][0].tolist() for query in queries]
    assert [grid[0] for grid in grids] == [len(group) for group in times]
    videos = [
        "".join(f"<{time:.1f} seconds>{image_text(height * width // 4, 'video')}" for time in group)
        for group, (_, height, width) in zip(times, grids, strict=True)
    ]
    check(chat, model, queries, [USER + video + task + ANSWER for video in videos])


def test_robo_reward_shows_the_recorded_size(layout: Layout) -> None:
    """8 frames of 384 x 384 pixels are 4 x 144 tokens of 2 x 2 patches within the limits of Qwen3-VL's release."""
    video = np.random.default_rng(0).integers(0, 255, (8, 384, 384, 3), np.uint8)
    chat = LocalChat(layout("robo_reward")["folder"])
    chat.processor.video_processor.size = {"shortest_edge": 4096, "longest_edge": 25_165_824}
    encoded = chat.encode([Query(parts=(video, "go"))])
    assert encoded["video_grid_thw"].tolist() == [[4, 24, 24]]


@pytest.mark.parametrize("goal", [False, True])
def test_lrm(layout: Layout, goal: bool) -> None:
    folders = layout("lrm")
    chat, queries = LrmChat(**folders), LrmQuestion().build_queries(make_context(3, 1, goal))  # type: ignore[arg-type]
    progress = prompts.LRM_GOAL_PROGRESS_PROMPT if goal else prompts.LRM_PROGRESS_PROMPT
    texts = [
        fill(prompts.LRM_CONTRASTIVE_PROMPT, 1),
        fill(prompts.LRM_COMPLETION_PROMPT, 1, strip=True),
        fill(progress, 1),
    ]
    for adapter, query, text in zip(ADAPTER_NAMES, queries, texts, strict=True):
        assert query.adapter == adapter
        base = transformers.Qwen3VLForConditionalGeneration.from_pretrained(folders["base_model"])
        model = peft.PeftModel.from_pretrained(base, folders["folder"] / adapter).eval()
        with chat._adapters.use_adapter(adapter):
            check(chat, model, [query], [USER + text + ANSWER])


def test_robometer(layout: Layout) -> None:
    chat = RobometerChat(**layout("robometer"))  # type: ignore[arg-type]
    calls: list[dict[str, torch.Tensor]] = []
    chat.model.register_forward_pre_hook(lambda module, args, kwargs: calls.append(kwargs), with_kwargs=True)
    chat.ask(RobometerQuestion().build_queries(make_context(3, 1)))
    frames = "".join(f"Picture {i}: {image_text(4)}<|prog_token|>" for i in range(1, 9))
    text = USER + prompts.ROBOMETER_PROMPT.replace("{instruction}", TASK) + frames + "<|im_end|>\n"
    assert calls[0]["input_ids"].tolist() == [chat.processor.tokenizer(text, add_special_tokens=False)["input_ids"]]


def test_vlac(layout: Layout) -> None:
    folder = layout("vlac")["folder"]
    chat = VlacChat(folder)
    special = chat.tokenizer.special_tokens
    encoder = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))

    def ids(*pieces: str) -> list[int]:
        encoded = [[special[piece]] if piece in special else encoder.encode(piece) for piece in pieces]
        return [encoder.bos_id(), *(token for group in encoded for token in group)]

    image = ("<img>", *["<IMG_CONTEXT>"] * 4, "</img>")
    start = ("<|im_start|>", f"system\n{prompts.VLAC_SYSTEM_PROMPT}", "<|im_end|>", "\n", "<|im_start|>")
    end = ("<|im_end|>", "\n", "<|im_start|>", "assistant\n")
    question: Question = VlacQuestion()
    critic, done = question.build_queries(make_context(3, 1))
    _, goal_done = question.build_queries(make_context(3, 1, goal=True))
    for query, prompt in (
        (critic, prompts.VLAC_CRITIC_PROMPT),
        (done, prompts.VLAC_DONE_PROMPT),
        (goal_done, prompts.VLAC_GOAL_DONE_PROMPT),
    ):
        head, *texts = prompt.replace("{instruction}", TASK).split("<image>")
        pieces: list[str] = [f"user\n{head}"]
        for text in texts:
            pieces += [*image, f"\n{text}"]
        assert chat.tokenizer.encode(chat.render_prompt(query)) == ids(*start, *pieces, *end)
