"""Parsers accept numbers and choices in the requested forms only."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.models.judges import parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("<progress>40%</progress>", 0.4),
        ("It grips.\n<progress> 62.5 % </progress>", 0.625),
        ("<progress>10%</progress> no: <progress>100</progress>", 1.0),
        ("<progress>140%</progress>", None),
        ("<progress>-3%</progress>", None),
        ("<progress>half</progress>", None),
        ("40%", None),
        ("", None),
        ("<progress>0.4</progress>", None),
        ("<progress>1.0</progress>", None),
        ("<progress>0.4%</progress>", 0.004),
        ("<progress>0</progress>", 0.0),
        ("<progress>0.0</progress>", 0.0),
        ("<progress>1</progress>", 0.01),
        ("<progress>62.5</progress>", 0.625),
        ("<progress>40%</progress> or <progress>0.4</progress>", None),
    ],
)
def test_progress_is_the_last_tagged_percentage(text: str, value: float | None) -> None:
    assert parse.progress(text) == value


@given(st.integers(0, 100), st.text(alphabet=st.characters(exclude_characters="<>")))
def test_text_around_a_tagged_number_is_ignored(number: int, text: str) -> None:
    assert parse.progress(f"{text}<progress>{number}%</progress>{text}") == pytest.approx(number / 100)


@pytest.mark.parametrize(
    ("text", "word"),
    [("Yes, it is.", "yes"), ("no", "no"), ("  **No**", "no"), ("Done: yes", None), ("maybe yes", None), ("1", None)],
)
def test_first_word_is_the_choice(text: str, word: str | None) -> None:
    assert parse.first_word(text, ("yes", "no")) == word


@pytest.mark.parametrize(
    ("text", "grade"), [("ANSWER: 3", "3"), ("ANSWER: 1. No: answer: **5**", "5"), ("ANSWER: 7", None), ("3", None)]
)
def test_grade_follows_the_last_answer_tag(text: str, grade: str | None) -> None:
    assert parse.answer(text, ("1", "2", "3", "4", "5")) == grade


@given(st.dictionaries(st.sampled_from("ABCDE"), st.floats(-800, 0), min_size=1))
def test_probabilities_sum_to_one_and_ignore_a_common_shift(logprobs: dict[str, float]) -> None:
    probabilities = parse.normalize_logprobs(logprobs)
    assert sum(probabilities.values()) == pytest.approx(1)
    shift = math.log(1e-3)
    assert parse.normalize_logprobs({k: v + shift for k, v in logprobs.items()}) == pytest.approx(probabilities)


def test_unlisted_choice_has_probability_zero() -> None:
    assert parse.normalize_logprobs({"yes": -0.1, "no": -math.inf}) == {"yes": 1.0, "no": 0.0}
