"""What is read off the models with heads of their own, against the same computed by hand; and VLAC's recursion."""

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


def test_robometer_reads_its_heads_behind_the_last_frame(layout: Layout) -> None:
    where = layout("robometer")
    chat = RobometerChat(**where)
    video = frames(3)
    (answer,) = chat.ask([Query(parts=(ROBOMETER_PROMPT, *video))])
    assert answer.head_outputs is not None
    tensors = {k: t for path in where["folder"].glob("*.safetensors") for k, t in load_file(path).items()}
    content = [{"type": "text", "text": ROBOMETER_PROMPT}]
    for frame in video:
        content += [{"type": "image", "image": frame}, {"type": "text", "text": "<|prog_token|>"}]
    turns = [{"role": "user", "content": content}]
    text = chat.processor.apply_chat_template(turns, tokenize=False, add_vision_id=True)
    assert text.startswith("<|im_start|>user\nThe task") and "Image 3: <|vision_start|>" in text
    assert text.count("<|vision_end|><|prog_token|>") == 3 and text.endswith("<|prog_token|><|im_end|>\n")
    given_ = chat.processor(text=[text], images=[video], return_tensors="pt")
    assert given_["input_ids"].max() < tensors["model.language_model.embed_tokens.weight"].shape[0]
    with torch.inference_mode():
        states = chat.model(**given_).last_hidden_state[0]
    at = torch.nonzero(given_["input_ids"][0] == chat.processor.tokenizer.convert_tokens_to_ids("<|prog_token|>"))[-1]

    def head(name: str) -> torch.Tensor:
        w = {
            key: tensors[f"{name}.{key}"] for key in ("0.weight", "0.bias", "1.weight", "1.bias", "4.weight", "4.bias")
        }
        hidden = torch.nn.functional.linear(states[at], w["0.weight"], w["0.bias"])
        hidden = torch.nn.functional.layer_norm(hidden, hidden.shape[-1:], w["1.weight"], w["1.bias"])
        return torch.nn.functional.linear(torch.nn.functional.gelu(hidden), w["4.weight"], w["4.bias"])[0]

    progress = float((head("progress_head").softmax(0) * torch.arange(10) / 9).sum())
    assert answer.head_outputs["progress"] == pytest.approx(progress, abs=1e-5)
    assert answer.head_outputs["success"] == pytest.approx(float(head("success_head").sigmoid()), abs=1e-5)


def test_videos_of_other_lengths_beside_it_change_nothing(layout: Layout) -> None:
    chat = RobometerChat(**layout("robometer"))
    queries = [Query(parts=(ROBOMETER_PROMPT, *frames(count))) for count in (1, 4, 2)]
    together, alone = chat.ask(queries), [chat.ask([query])[0] for query in queries]
    for a, b in zip(together, alone, strict=True):
        assert a.head_outputs == pytest.approx(b.head_outputs, abs=1e-5)


def test_rewind_is_its_network_over_its_encoders(layout: Layout) -> None:
    where = layout("rewind")
    chat = RewindChat(**where)
    video = frames(16, 256)
    (answer,) = chat.ask([Query(parts=("open the red drawer", *video))])
    (path,) = where["folder"].glob("*.pth")
    net = RewindTransformer().eval()
    # The test may use torch's own reader, the package may not.
    net.load_state_dict(torch.load(path, weights_only=False)["model_state_dict"])
    eye = transformers.Dinov2Model.from_pretrained(where["base_model"] / "dinov2").eval()
    reader = transformers.BertModel.from_pretrained(where["base_model"] / "minilm").eval()
    pixels = torch.stack([(torch.from_numpy(f[16:240, 16:240]).permute(2, 0, 1) / 255 - 0.5) / 0.5 for f in video])
    with torch.inference_mode():
        seen = eye(pixel_values=pixels).last_hidden_state[:, 0]
        ids = torch.tensor([chat.tokenizer.encode("open the red drawer").ids])
        read = reader(input_ids=ids).last_hidden_state.mean(1)
        expected = float(net(seen[None], read)[0, -1])
    assert answer.head_outputs == pytest.approx({"progress": expected}, abs=1e-5)


def test_a_small_image_is_enlarged_and_a_large_one_cut(layout: Layout) -> None:
    assert center_crop(frames(1, 64)[0]).shape == (3, 224, 224)
    wide = RNG.integers(0, 255, (240, 320, 3), dtype=np.uint8)
    assert torch.allclose(center_crop(wide), torch.from_numpy(wide[8:232, 48:272]).permute(2, 0, 1) / 127.5 - 1)


@pytest.mark.parametrize(("heads", "groups"), [(4, 2), (4, 4), (6, 1)])
def test_queries_keys_and_values_are_found_in_their_groups(heads: int, groups: int) -> None:
    size, width = 2, 3
    named = []
    for group in range(groups):
        named += [("q", group * (heads // groups) + i, r) for i in range(heads // groups) for r in range(size)]
        named += [("k", group, r) for r in range(size)] + [("v", group, r) for r in range(size)]
    packed = torch.arange(len(named), dtype=torch.float32)[:, None].expand(-1, width).contiguous()
    found = split_qkv(packed, heads, groups)
    for part, count in (("q", heads), ("k", groups), ("v", groups)):
        rows = [named[int(row[0])] for row in found[part]]
        assert rows == [(part, i, r) for i in range(count) for r in range(size)]


def test_every_weight_of_the_release_has_a_place(layout: Layout) -> None:
    folder = layout("vlac")["folder"]
    chat = VlacChat(folder)
    names = set(convert_weights(load_file(folder / "model.safetensors"), 4, 2))
    assert names == set(chat.model.state_dict())


def test_vlac_writes_a_conversation_with_a_place_for_what_it_sees(layout: Layout) -> None:
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
def test_vlacs_value_stays_between_nothing_and_all(value: float, change: float) -> None:
    after = apply_change(value, change)
    assert 0 <= after <= 100
    assert after >= value - 1e-9 if change > 0 else after <= max(value, FLOOR_PERCENT) + 1e-9


@pytest.mark.parametrize(
    ("value", "change", "after"), [(0, 30, 30), (50, 50, 75), (40, -50, 20), (80, -50, 60), (80, -100, 10), (60, 0, 60)]
)
def test_vlacs_recursion_is_its_authors(value: float, change: float, after: float) -> None:
    assert apply_change(value, change) == pytest.approx(after)
