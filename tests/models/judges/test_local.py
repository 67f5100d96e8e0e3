"""A model of `transformers` in this process: what it says is what the library says, and its folder runs no code."""

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
from embodied_rm.models.judges.local import LocalChat, chat_messages
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


def test_it_writes_what_the_library_writes_alone_or_side_by_side(folder: Path) -> None:
    chat = LocalChat(folder)
    together = [answer.text for answer in chat.ask(QUERIES)]
    assert together == [chat.ask([query])[0].text for query in QUERIES]
    processor = transformers.AutoProcessor.from_pretrained(folder)
    model = transformers.AutoModelForImageTextToText.from_pretrained(folder).eval()
    for query, text in zip(QUERIES, together, strict=True):
        given = processor.apply_chat_template(
            chat_messages(query), tokenize=True, add_generation_prompt=True, return_dict=True, return_tensors="pt"
        )
        said = model.generate(**given, do_sample=False, max_new_tokens=6)[:, given["input_ids"].shape[1] :]
        assert text == processor.batch_decode(said, skip_special_tokens=True)[0]


def test_log_probabilities_are_those_of_the_words_one_after_the_other(folder: Path) -> None:
    """Of words of one token and of several, against a forward pass for each token."""
    chat = LocalChat(folder)
    choices = ("yes", "no", "True", "7")
    queries = [Query(parts=query.parts, choices=choices) for query in QUERIES]
    for query, answer in zip(queries, chat.ask(queries), strict=True):
        assert answer.logprobs is not None
        for word in choices:
            inputs, total = chat.encode([query]), 0.0
            for token in chat.processor.tokenizer(word, add_special_tokens=False)["input_ids"]:
                with torch.inference_mode():
                    row = chat.model(**inputs).logits[0, -1].log_softmax(dim=-1)
                total += float(row[token])
                inputs["input_ids"] = torch.cat([inputs["input_ids"], torch.tensor([[token]])], dim=1)
                for name, value in (("attention_mask", 1), ("mm_token_type_ids", 0)):
                    inputs[name] = torch.cat([inputs[name], torch.tensor([[value]])], dim=1)
            assert answer.logprobs[word] == pytest.approx(total, abs=1e-4), word


def test_a_video_of_queries_is_answered_in_its_order_whatever_is_asked(folder: Path) -> None:
    chat = LocalChat(folder, batch_size=2)
    mixed = [QUERIES[0], Query(parts=QUERIES[1].parts, choices=("yes",)), QUERIES[1]]
    answers = chat.ask(mixed)
    assert [answer.text is None for answer in answers] == [False, True, False]
    assert answers[2].text == chat.ask([QUERIES[1]])[0].text


def test_it_learns_to_be_asked_and_is_then_scored(tmp_path: Path) -> None:
    from sprites import episode

    chat = LocalChat(tiny_vlm.save_model(tmp_path, answer="<progress>40%</progress>"))
    (curve,) = score_episodes(VlmJudge(chat, ProgressQuestion()), [episode(0, length=4)])
    assert curve.valid.all() and curve.progress[1:] == pytest.approx(0.4)
    (curve,) = score_episodes(VlmJudge(chat, LOGPROB_QUESTIONS["completion"]), [episode(0, length=4)])
    assert ((curve.progress[1:] > 0) & (curve.progress[1:] < 1)).all()


def test_a_folder_that_is_none_is_told_by_name_and_runs_nothing(folder: Path, tmp_path: Path) -> None:
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
    with pytest.raises(CheckpointError, match=r"[34] of its weights are missing, .*layers\.1\.mlp"):
        LocalChat(broken)
    described = json.loads((folder / "config.json").read_text())
    (broken / "evil.py").write_text("raise RuntimeError('code of a checkpoint was run')\n")
    described |= {"model_type": "strange", "auto_map": {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}}
    (broken / "config.json").write_text(json.dumps(described))
    with pytest.raises(CheckpointError, match="not a vision-language model that can be loaded"):
        LocalChat(broken)
