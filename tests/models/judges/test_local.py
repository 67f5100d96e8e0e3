"""`LocalChat` gives the outputs of `transformers`, and executes no code of the model folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tiny_vlm
import torch
from safetensors.torch import load_file, save_file

from embodied_rm.errors import CheckpointError
from embodied_rm.models.judges.chat import Query
from embodied_rm.models.judges.local import LocalChat, chat_messages, has_pixel_limits
from embodied_rm.models.judges.questions import LOGPROB_QUESTIONS, ProgressQuestion
from embodied_rm.models.judges.vlm_judge import VlmJudge
from embodied_rm.models.scoring import score_episodes

import transformers  # isort: skip

RNG = np.random.default_rng(0)
FRAMES = list(RNG.integers(0, 255, (3, 40, 40, 3), dtype=np.uint8))
QUERIES = [
    Query(parts=("Before:", FRAMES[0], "Now:", FRAMES[1], "Is it done?"), max_tokens=6),
    Query(parts=(FRAMES[2], "How far is it, in percent of the whole?"), system="You are brief.", max_tokens=6),
]


@pytest.fixture(scope="module", params=sorted(tiny_vlm.MODEL_FAMILIES))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_vlm.save_model(tmp_path_factory.mktemp("vlm") / request.param, request.param)


def test_text_is_that_of_transformers_with_and_without_batching(folder: Path) -> None:
    chat = LocalChat(folder)
    texts = [answer.text for answer in chat.ask(QUERIES)]
    assert texts == [chat.ask([query])[0].text for query in QUERIES]
    processor = transformers.AutoProcessor.from_pretrained(folder)
    model = transformers.AutoModelForImageTextToText.from_pretrained(folder).eval()
    for query, text in zip(QUERIES, texts, strict=True):
        inputs = processor.apply_chat_template(
            chat_messages(query), tokenize=True, add_generation_prompt=True, return_dict=True, return_tensors="pt"
        )
        generated = model.generate(**inputs, do_sample=False, max_new_tokens=6)[:, inputs["input_ids"].shape[1] :]
        assert text == processor.batch_decode(generated, skip_special_tokens=True)[0]


def test_logprobs_equal_one_forward_pass_per_token(folder: Path) -> None:
    """The words have several tokens, or one; spellings of one token are summed."""
    chat = LocalChat(folder)
    choices = ("yes", "no", "True", "percentages")
    assert len(chat.spelling_ids("yes")) > 1 and not chat.spelling_ids("percentages")
    queries = [Query(parts=query.parts, choices=choices) for query in QUERIES]
    for query, answer in zip(queries, chat.ask(queries), strict=True):
        assert answer.logprobs is not None
        for word in choices:
            expected = folded_logprob(chat, query, word)
            assert answer.logprobs[word] == pytest.approx(expected, abs=1e-4), word


@torch.inference_mode()
def folded_logprob(chat: LocalChat, query: Query, word: str) -> float:
    """Sum over all tokens of the vocabulary that spell the word; without any, one forward pass per token."""
    inputs, total = chat.encode([query]), 0.0
    row = chat.model(**inputs).logits[0, -1].log_softmax(dim=-1)
    forms = {space + form for form in (word, word.lower(), word.upper(), word.capitalize()) for space in ("", " ")}
    spellings = [token for token in range(len(chat.processor.tokenizer)) if chat.processor.decode([token]) in forms]
    if spellings:
        return float(row[spellings].logsumexp(dim=0))
    for token in chat.processor.tokenizer(word, add_special_tokens=False)["input_ids"]:
        total += float(chat.model(**inputs).logits[0, -1].log_softmax(dim=-1)[token])
        inputs["input_ids"] = torch.cat([inputs["input_ids"], torch.tensor([[token]])], dim=1)
        for name, value in (("attention_mask", 1), ("mm_token_type_ids", 0)):
            inputs[name] = torch.cat([inputs[name], torch.tensor([[value]])], dim=1)
    return total


def test_mixed_queries_are_answered_in_order(folder: Path) -> None:
    chat = LocalChat(folder, batch_size=2)
    mixed = [QUERIES[0], Query(parts=QUERIES[1].parts, choices=("yes",)), QUERIES[1]]
    answers = chat.ask(mixed)
    assert [answer.text is None for answer in answers] == [False, True, False]
    assert answers[2].text == chat.ask([QUERIES[1]])[0].text


def test_trained_model_scores_an_episode(tmp_path: Path) -> None:
    from sprites import episode

    chat = LocalChat(tiny_vlm.save_model(tmp_path, answer="<progress>40%</progress>"))
    (curve,) = score_episodes(VlmJudge(chat, ProgressQuestion()), [episode(0, length=4)])
    assert curve.valid.all() and curve.progress[1:] == pytest.approx(0.4)
    (curve,) = score_episodes(VlmJudge(chat, LOGPROB_QUESTIONS["completion"]), [episode(0, length=4)])
    assert ((curve.progress[1:] > 0) & (curve.progress[1:] < 1)).all()


def test_invalid_folder_is_named_and_its_code_is_not_executed(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"empty: no config.json"):
        LocalChat(tmp_path / "empty")
    broken = tmp_path / "broken"
    broken.mkdir()
    for path in folder.iterdir():
        (broken / path.name).write_bytes(path.read_bytes())
    weights = load_file(broken / "model.safetensors")
    save_file(
        {k: t for k, t in weights.items() if "layers.1.mlp" not in k}, broken / "model.safetensors", {"format": "pt"}
    )
    with pytest.raises(
        CheckpointError,
        match=r"[34] of \d+ weights are missing, such as .*layers\.1\.mlp.* \(the nearest name is .*mlp",
    ):
        LocalChat(broken)
    config = json.loads((folder / "config.json").read_text())
    (broken / "evil.py").write_text("raise RuntimeError('code of a checkpoint was run')\n")
    config |= {"model_type": "strange", "auto_map": {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}}
    (broken / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="cannot be loaded as a vision-language model"):
        LocalChat(broken)


def test_an_adapter_beside_the_whole_model_is_refused(tmp_path: Path) -> None:
    """With PEFT, transformers would add it; without PEFT, the scores would be those of the base model."""
    folder = tiny_vlm.save_model(tmp_path / "model", "qwen3_vl")
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "base_model_name_or_path": "x"}))
    with pytest.raises(CheckpointError, match="a LoRA adapter beside the weights of the whole model: merge it"):
        LocalChat(folder)
    (folder / "adapter_config.json").unlink()
    weights = load_file(folder / "model.safetensors")
    layer = next(name for name in weights if name.endswith("q_proj.weight")).removesuffix(".weight")
    lora = {f"{layer}.lora_{side}.default.weight": torch.ones(2, 2) for side in "AB"}
    save_file({**weights, **lora}, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match="a LoRA adapter beside the weights of the whole model: merge it"):
        LocalChat(folder)


def test_a_template_that_begins_a_reasoning_gives_no_answer_within_it(tmp_path: Path) -> None:
    folder = tiny_vlm.save_model(tmp_path / "model", "qwen3_vl")
    path = folder / "chat_template.jinja"
    path.write_text(path.read_text() + "{{- '<think>\\n' }}")
    chat = LocalChat(folder)
    (answer,) = chat.ask(QUERIES[:1])
    assert answer.text is not None and answer.text.startswith("<think>")
    with pytest.raises(CheckpointError, match="begins a reasoning, and its next token is no choice"):
        chat.ask([Query(parts=("Is it done?",), choices=("yes", "no"))])


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"max_pixels": 3136}, True),
        ({"size": {"longest_edge": 3136}}, True),
        ({"size": {"min_pixels": 784, "max_pixels": 3136}}, True),
        ({"size": {"height": 56, "width": 56}}, False),
    ],
)
def test_every_number_of_pixels_that_a_folder_states_counts(
    tmp_path: Path, stated: dict[str, object], expected: bool
) -> None:
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": stated}))
    assert has_pixel_limits(tmp_path) is expected
