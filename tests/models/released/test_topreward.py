"""TOPReward has the token ids and the log-probability of LeRobot's port of it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import tiny_vlm
import torch
from released_baselines import STATEMENT, fill_weights

from embodied_rm.errors import CheckpointError
from embodied_rm.models.judges.chat import Answer, Query
from embodied_rm.models.judges.frame_history import FrameHistory, MultiViewFrame
from embodied_rm.models.judges.judge_state import EpisodeContext
from embodied_rm.models.released.topreward import TopRewardChat, TopRewardQuestion

TASKS = ("open the drawer", "lift the red cube")
PORT_LOGPROBS = {
    (2, "open the drawer"): (120, -6.772335),
    (2, "lift the red cube"): (132, -6.879485),
    (3, "open the drawer"): (159, -7.013047),
    (3, "lift the red cube"): (171, -6.910505),
    (8, "open the drawer"): (169, -6.094707),
    (8, "lift the red cube"): (181, -5.865558),
    (16, "open the drawer"): (237, -6.043558),
    (16, "lift the red cube"): (249, -6.052840),
}
"""Number of frames and task -> number of tokens and log-probability of `TOPRewardModel` of lerobot 0.6.1."""


def video(length: int) -> np.ndarray:
    return np.random.default_rng(length).integers(0, 255, (length, 48, 64, 3), np.uint8)


def context_of(length: int, task: str) -> EpisodeContext:
    """An episode at its last frame."""
    frames = [MultiViewFrame(frame[None], np.ones(1, bool)) for frame in video(length)]
    history = FrameHistory(capacity=64)
    for frame in frames[:-1]:
        history = history.append(frame)
    ends = {"first": frames[0], "previous": frames[0], "current": frames[-1]}
    return EpisodeContext(instruction=task, view_names=("front",), history=history, **ends)


def query_of(length: int, task: str) -> Query:
    (query,) = TopRewardQuestion().build_queries(context_of(length, task))
    return query


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that does not depend on the prompts of this package, nor on the random numbers of torch."""
    path = tmp_path_factory.mktemp("qwen3")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_vlm, "TOKENIZER_CORPUS", [STATEMENT])
        model, processor = tiny_vlm.make_qwen3()
    fill_weights(model)
    model.save_pretrained(path)
    processor.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def chat(folder: Path) -> TopRewardChat:
    return TopRewardChat(folder)


@pytest.mark.parametrize(("length", "task"), PORT_LOGPROBS)
def test_the_log_probability_is_that_of_the_port(chat: TopRewardChat, length: int, task: str) -> None:
    query = query_of(length, task)
    num_tokens, logprob = PORT_LOGPROBS[length, task]
    assert chat.encode([query])["input_ids"].shape == (1, num_tokens)
    (answer,) = chat.ask([query])
    assert answer.logprobs == pytest.approx({"True": logprob}, abs=2e-5)


def test_the_statement_follows_one_video_in_the_unfinished_turn_of_the_user(chat: TopRewardChat) -> None:
    (ids,) = chat.encode([query_of(4, "open the drawer")])["input_ids"].tolist()
    text = re.sub(r"(<\|video_pad\|>)+", "#", chat.processor.tokenizer.decode(ids))
    frames = "".join(f"<{time} seconds><|vision_start|>#<|vision_end|>" for time in ("0.2", "1.2"))
    assert text == f"<|im_start|>user\n{frames}{STATEMENT}"
    assert chat.processor.tokenizer.decode(ids[-1:]) == " True"


def test_a_batch_has_the_values_of_single_queries(chat: TopRewardChat) -> None:
    queries = [query_of(length, task) for length, task in zip((2, 5, 3), (*TASKS, TASKS[0]), strict=True)]
    values = [answer.logprobs for answer in chat.ask(queries)]
    for query, value in zip(queries, values, strict=True):
        assert chat.ask([query])[0].logprobs == pytest.approx(value, abs=1e-5)


@pytest.mark.parametrize(("length", "expected"), [(1, 2), (2, 2), (16, 16), (40, 16)])
def test_a_video_has_two_to_sixteen_frames_and_ends_now(length: int, expected: int) -> None:
    query = query_of(length, "lift it")
    part = query.parts[0]
    assert not isinstance(part, str) and len(part) == expected and query.fps == 2.0
    assert np.array_equal(part[0], video(length)[0]) and np.array_equal(part[-1], video(length)[-1])


@pytest.mark.parametrize(("logprob", "potential"), [(-25.0, 0.0), (-15.0, 0.5), (-5.0, 1.0), (-0.1, 1.0), (-60.0, 0.0)])
def test_the_potential_has_fixed_bounds(logprob: float, potential: float) -> None:
    parsed = TopRewardQuestion().parse_answers([Answer(logprobs={"True": logprob})], context_of(2, "go"))
    assert parsed is not None and parsed.potential == pytest.approx(potential) and np.isnan(parsed.success)


def test_another_family_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="TOPReward needs a Qwen3-VL, this is a 'qwen2_5_vl'"):
        TopRewardChat(tiny_vlm.save_model(tmp_path, "qwen2_5_vl"))


def test_the_weights_of_the_test_do_not_depend_on_torch() -> None:
    layer = torch.nn.Linear(2, 2)
    fill_weights(layer)
    assert layer.bias.tolist() == pytest.approx([0.0, 0.1 * np.sin(0.7)])
