"""Queries and parsed answers of each question."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from models.judges.scripted import images, ramp

from embodied_rm.models.judges.chat import Answer
from embodied_rm.models.judges.frame_history import FrameHistory, MultiViewFrame
from embodied_rm.models.judges.judge_config import JUDGE_TYPES, SHUFFLED_QUESTION
from embodied_rm.models.judges.judge_state import EpisodeContext
from embodied_rm.models.judges.questions import CLOSER_HOP, LOGPROB_QUESTIONS, TEXT_QUESTIONS, interleave_images


def make_context(potential: float = 0.5, length: int = 3) -> EpisodeContext:
    frames = [MultiViewFrame(frame[None], np.ones(1, bool)) for frame in ramp(length + 1).views["front"]]
    history = FrameHistory(capacity=64)
    for frame in frames[:-1]:
        history = history.append(frame)
    return EpisodeContext(
        instruction="lift it",
        view_names=("front",),
        history=history,
        first=frames[0],
        previous=frames[-2],
        current=frames[-1],
        potential=potential,
    )


@pytest.mark.parametrize(
    ("question", "answer", "value", "success"),
    [
        (TEXT_QUESTIONS["progress"], "<progress>25%</progress>", 0.25, math.nan),
        (TEXT_QUESTIONS["remaining"], "grip it\nlift it\n<progress>50%</progress>", 0.5, math.nan),
        (TEXT_QUESTIONS["completion"], "Yes.", 1.0, 1.0),
        (TEXT_QUESTIONS["completion"], "no", 0.0, 0.0),
        (TEXT_QUESTIONS["closer"], "B", 0.5 + CLOSER_HOP * 0.5, math.nan),
        (TEXT_QUESTIONS["closer"], "A", 0.5 - CLOSER_HOP * 0.5, math.nan),
        (TEXT_QUESTIONS["closer"], "C", 0.5, math.nan),
        (TEXT_QUESTIONS["rubric"], "ANSWER: 4", 0.75, 0.0),
        (TEXT_QUESTIONS["rubric"], "ANSWER: 5", 1.0, 1.0),
    ],
)
def test_text_answers(question, answer: str, value: float, success: float) -> None:
    parsed = question.parse_answers([Answer(text=answer)], make_context())
    assert parsed is not None
    assert parsed[:2] == pytest.approx((value, success), nan_ok=True)
    assert question.predicts_success != math.isnan(success)


@pytest.mark.parametrize(
    ("name", "logprobs", "value", "success"),
    [
        ("completion", {"yes": math.log(0.3), "no": math.log(0.1)}, 0.75, 0.75),
        (
            "closer",
            {"A": math.log(0.1), "B": math.log(0.4), "C": math.log(0.1)},
            0.5 + 0.5 * CLOSER_HOP * 0.5,
            math.nan,
        ),
        ("rubric", dict(zip("12345", map(math.log, (0.1, 0.1, 0.1, 0.1, 0.6)), strict=True)), 0.75, 0.6),
        ("true_logprob", {"True": -15.0}, 0.5, math.nan),
        ("true_logprob", {"True": -2.0}, 1.0, math.nan),
        ("true_logprob", {"True": -60.0}, 0.0, math.nan),
    ],
)
def test_logprob_answers(name: str, logprobs: dict[str, float], value: float, success: float) -> None:
    parsed = LOGPROB_QUESTIONS[name].parse_answers([Answer(logprobs=logprobs)], make_context())
    assert parsed is not None and parsed[:2] == pytest.approx((value, success), nan_ok=True)


@pytest.mark.parametrize("name", TEXT_QUESTIONS)
def test_unparsable_text_gives_none(name: str) -> None:
    for text in ("", "I am a language model.", "0", "null"):
        assert TEXT_QUESTIONS[name].parse_answers([Answer(text=text)], make_context()) is None


def test_queries_end_with_the_current_frame() -> None:
    context = make_context()
    last_brightness = [
        images(question.build_queries(context)[0])[-1][4, 4, 0]
        for question in (*TEXT_QUESTIONS.values(), *LOGPROB_QUESTIONS.values())
    ]
    assert set(last_brightness) == {30}
    assert len(images(TEXT_QUESTIONS["rubric"].build_queries(make_context(length=20))[0])) == 8, (
        "eight timesteps of a long video"
    )
    invisible = MultiViewFrame(context.current.frames, np.zeros(1, bool))
    dark = replace(context, current=invisible, history=FrameHistory(capacity=1))
    assert images(TEXT_QUESTIONS["progress"].build_queries(dark)[0])[-1][4, 4, 0] == 0, "invisible views are left out"


def test_template_is_filled_with_images_in_order() -> None:
    frames = [np.full((1, 1, 3), i, np.uint8) for i in range(2)]
    parts = interleave_images("<image> first, then\n<image>", "x", frames)
    assert [part if isinstance(part, str) else int(part[0, 0, 0]) for part in parts] == [0, " first, then\n", 1]
    assert interleave_images(" a <image> {instruction} ", "<image>", frames[:1], strip=True)[0] == "a"


@pytest.mark.parametrize("name", [*TEXT_QUESTIONS, *LOGPROB_QUESTIONS, SHUFFLED_QUESTION, *JUDGE_TYPES])
def test_names_are_strings_on_the_command_line(name: str) -> None:
    """Hydra would make a boolean of `true`, and a number of `1`."""
    assert OverridesParser.create().parse_override(f"judge.question={name}").value() == name
