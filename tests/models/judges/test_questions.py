"""What each question makes of its answers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from models.judges.scripted import pictures, ramp

from embodied_rm.models.judges.chat import Answer
from embodied_rm.models.judges.film import Film, Picture
from embodied_rm.models.judges.memory import Moment
from embodied_rm.models.judges.questions import BY_LOGPROBS, CLOSER_HOP, QUESTIONS, interleaved


def moment(value: float = 0.5, length: int = 3) -> Moment:
    shown = [Picture(frame[None], np.ones(1, bool)) for frame in ramp(length + 1).views["front"]]
    film = Film(room=64)
    for picture in shown[:-1]:
        film = film.added(picture)
    return Moment(
        instruction="lift it",
        names=("front",),
        film=film,
        first=shown[0],
        previous=shown[-2],
        now=shown[-1],
        value=value,
    )


@pytest.mark.parametrize(
    ("question", "answer", "value", "success"),
    [
        (QUESTIONS["progress"], "<progress>25%</progress>", 0.25, math.nan),
        (QUESTIONS["remaining"], "grip it\nlift it\n<progress>50%</progress>", 0.5, math.nan),
        (QUESTIONS["completion"], "Yes.", 1.0, 1.0),
        (QUESTIONS["completion"], "no", 0.0, 0.0),
        (QUESTIONS["closer"], "B", 0.5 + CLOSER_HOP * 0.5, math.nan),
        (QUESTIONS["closer"], "A", 0.5 - CLOSER_HOP * 0.5, math.nan),
        (QUESTIONS["closer"], "C", 0.5, math.nan),
        (QUESTIONS["rubric"], "ANSWER: 4", 0.75, 0.0),
        (QUESTIONS["rubric"], "ANSWER: 5", 1.0, 1.0),
    ],
)
def test_written_answers(question, answer: str, value: float, success: float) -> None:
    said = question.read([Answer(text=answer)], moment())
    assert said is not None
    assert said == pytest.approx((value, success), nan_ok=True)
    assert question.tells_success != math.isnan(success)


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
        ("true", {"True": -15.0}, 0.5, math.nan),
        ("true", {"True": -2.0}, 1.0, math.nan),
        ("true", {"True": -60.0}, 0.0, math.nan),
    ],
)
def test_answers_by_log_probabilities(name: str, logprobs: dict[str, float], value: float, success: float) -> None:
    said = BY_LOGPROBS[name].read([Answer(logprobs=logprobs)], moment())
    assert said is not None and said == pytest.approx((value, success), nan_ok=True)


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_cannot_be_parsed_is_nothing_and_not_zero(name: str) -> None:
    for text in ("", "I am a language model.", "0", "null"):
        assert QUESTIONS[name].read([Answer(text=text)], moment()) is None


def test_a_question_shows_what_it_asks_about() -> None:
    now = moment()
    last = [pictures(question.ask(now)[0])[-1][4, 4, 0] for question in (*QUESTIONS.values(), *BY_LOGPROBS.values())]
    assert set(last) == {30}, "the present frame comes last"
    assert len(pictures(QUESTIONS["rubric"].ask(moment(length=20))[0])) == 8, "of a long film, eight moments"
    dark = replace(now, now=Picture(now.now.frames, np.zeros(1, bool)), film=Film(room=1))
    assert pictures(QUESTIONS["progress"].ask(dark)[0])[-1][4, 4, 0] == 0, "a view that is not there is not shown"


def test_a_prompt_with_places_for_pictures_is_filled_in_order() -> None:
    frames = [np.full((1, 1, 3), i, np.uint8) for i in range(2)]
    parts = interleaved("<image> first, then\n<image>", "x", frames)
    assert [part if isinstance(part, str) else int(part[0, 0, 0]) for part in parts] == [0, " first, then\n", 1]
    assert interleaved(" a <image> {instruction} ", "<image>", frames[:1], stripped=True)[0] == "a"
