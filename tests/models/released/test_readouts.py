"""Head outputs of the models with own heads against a direct computation, and the recursion of VLAC."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from released_layouts import RewindTransformer
from safetensors.torch import load_file

from embodied_rm.models.judges.chat import Query
from embodied_rm.models.judges.released_prompts import ROBOMETER_PROMPT
from embodied_rm.models.released.internvl_weights import convert_weights, split_qkv
from embodied_rm.models.released.rewind import RewindChat, center_crop
from embodied_rm.models.released.robometer import RobometerChat
from embodied_rm.models.released.vlac import FLOOR_PERCENT, VlacChat, apply_change

import transformers  # isort: skip

Layout = Callable[[str], dict[str, Path]]
RNG = np.random.default_rng(0)


def frames(count: int, size: int = 48) -> list[np.ndarray]:
    return list(RNG.integers(0, 255, (count, size, size, 3), dtype=np.uint8))


def test_robometer_applies_its_heads_after_the_last_frame(layout: Layout) -> None:
    folders = layout("robometer")
    chat = RobometerChat(**folders)
    video = frames(3)
    (answer,) = chat.ask([Query(parts=(ROBOMETER_PROMPT, *video))])
    assert answer.head_outputs is not None
    tensors = {k: t for path in folders["folder"].glob("*.safetensors") for k, t in load_file(path).items()}
    content = [{"type": "text", "text": ROBOMETER_PROMPT}]
    for frame in video:
        content += [{"type": "image", "image": frame}, {"type": "text", "text": "<|prog_token|>"}]
    messages = [{"role": "user", "content": content}]
    text = chat.processor.apply_chat_template(messages, tokenize=False, add_vision_id=True)
    assert text.startswith("<|im_start|>user\nThe task") and "Picture 3: <|vision_start|>" in text
    assert text.count("<|vision_end|><|prog_token|>") == 3 and text.endswith("<|prog_token|><|im_end|>\n")
    inputs = chat.processor(text=[text], images=[video], return_tensors="pt")
    assert inputs["input_ids"].max() < tensors["model.language_model.embed_tokens.weight"].shape[0]
    with torch.inference_mode():
        states = chat.model(**inputs).last_hidden_state[0]
    token_index = torch.nonzero(
        inputs["input_ids"][0] == chat.processor.tokenizer.convert_tokens_to_ids("<|prog_token|>")
    )[-1]

    def head(name: str) -> torch.Tensor:
        w = {
            key: tensors[f"{name}.{key}"] for key in ("0.weight", "0.bias", "1.weight", "1.bias", "4.weight", "4.bias")
        }
        hidden = torch.nn.functional.linear(states[token_index], w["0.weight"], w["0.bias"])
        hidden = torch.nn.functional.layer_norm(hidden, hidden.shape[-1:], w["1.weight"], w["1.bias"])
        return torch.nn.functional.linear(torch.nn.functional.gelu(hidden), w["4.weight"], w["4.bias"])[0]

    progress = float((head("progress_head").softmax(0) * torch.arange(10) / 9).sum())
    assert answer.head_outputs["progress"] == pytest.approx(progress, abs=1e-5)
    assert answer.head_outputs["success"] == pytest.approx(float(head("success_head").sigmoid()), abs=1e-5)


def test_robometer_outputs_do_not_depend_on_the_batch(layout: Layout) -> None:
    chat = RobometerChat(**layout("robometer"))
    queries = [Query(parts=(ROBOMETER_PROMPT, *frames(count))) for count in (1, 4, 2)]
    batched, single = chat.ask(queries), [chat.ask([query])[0] for query in queries]
    for a, b in zip(batched, single, strict=True):
        assert a.head_outputs == pytest.approx(b.head_outputs, abs=1e-5)


def test_rewind_equals_its_network_on_its_encoders(layout: Layout) -> None:
    folders = layout("rewind")
    chat = RewindChat(**folders)
    video = frames(16, 256)
    (answer,) = chat.ask([Query(parts=("open the red drawer", *video))])
    (path,) = folders["folder"].glob("*.pth")
    net = RewindTransformer().eval()
    # torch.load is safe here, because this test wrote the file.
    net.load_state_dict(torch.load(path, weights_only=False)["model_state_dict"])
    vision_model = transformers.Dinov2Model.from_pretrained(folders["base_model"] / "dinov2").eval()
    text_model = transformers.BertModel.from_pretrained(folders["base_model"] / "minilm").eval()
    pixels = torch.stack([(torch.from_numpy(f[16:240, 16:240]).permute(2, 0, 1) / 255 - 0.5) / 0.5 for f in video])
    with torch.inference_mode():
        image_embeds = vision_model(pixel_values=pixels).last_hidden_state[:, 0]
        ids = torch.tensor([chat.encoders.tokenizer.encode("open the red drawer").ids])
        text_embeds = text_model(input_ids=ids).last_hidden_state.mean(1)
        expected = float(net(image_embeds[None], text_embeds)[0, -1])
    assert answer.head_outputs == pytest.approx({"progress": expected}, abs=1e-5)


def test_rewind_enlarges_small_images_and_crops_large_ones(layout: Layout) -> None:
    assert center_crop(frames(1, 64)[0]).shape == (3, 224, 224)
    wide = RNG.integers(0, 255, (240, 320, 3), dtype=np.uint8)
    assert torch.allclose(center_crop(wide), torch.from_numpy(wide[8:232, 48:272]).permute(2, 0, 1) / 127.5 - 1)


@pytest.mark.parametrize(("heads", "groups"), [(4, 2), (4, 4), (6, 1)])
def test_split_qkv_separates_queries_keys_and_values(heads: int, groups: int) -> None:
    size, width = 2, 3
    row_names = []
    for group in range(groups):
        row_names += [("q", group * (heads // groups) + i, r) for i in range(heads // groups) for r in range(size)]
        row_names += [("k", group, r) for r in range(size)] + [("v", group, r) for r in range(size)]
    packed = torch.arange(len(row_names), dtype=torch.float32)[:, None].expand(-1, width).contiguous()
    parts = split_qkv(packed, heads, groups)
    for part, count in (("q", heads), ("k", groups), ("v", groups)):
        rows = [row_names[int(row[0])] for row in parts[part]]
        assert rows == [(part, i, r) for i in range(count) for r in range(size)]


def test_every_released_weight_is_converted(layout: Layout) -> None:
    folder = layout("vlac")["folder"]
    chat = VlacChat(folder)
    names = set(convert_weights(load_file(folder / "model.safetensors"), 4, 2))
    assert names == set(chat.model.state_dict())


def test_vlac_prompt_has_the_image_tokens(layout: Layout) -> None:
    chat = VlacChat(layout("vlac")["folder"])
    text = chat.render_prompt(Query(parts=("A: ", frames(1)[0], "done?"), system="S"))
    assert text == (
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nA: <img>"
        + "<IMG_CONTEXT>" * 4
        + "</img>\ndone?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    ids = chat.tokenizer.encode(text)
    assert ids.count(chat.tokenizer.special_tokens["<IMG_CONTEXT>"]) == 4 and chat.tokenizer.decode(ids[1:]).endswith(
        "assistant\n"
    )


@given(st.floats(0, 100), st.floats(-100, 100))
def test_vlac_progress_stays_in_range(value: float, change: float) -> None:
    result = apply_change(value, change)
    assert 0 <= result <= 100
    assert result >= value - 1e-9 if change > 0 else result <= max(value, FLOOR_PERCENT) + 1e-9


@pytest.mark.parametrize(
    ("value", "change", "expected"),
    [(0, 30, 30), (50, 50, 75), (40, -50, 20), (80, -50, 60), (80, -100, 10), (60, 0, 60)],
)
def test_vlac_recursion_equals_that_of_the_authors(value: float, change: float, expected: float) -> None:
    assert apply_change(value, change) == pytest.approx(expected)
