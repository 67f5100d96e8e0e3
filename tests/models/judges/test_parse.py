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
        ("<progress>10%</progress> at first, now <progress>6", None),
        ("<progress>40%</progress> no, <progress>about half</progress>", None),
        ("<think><progress>10%</progress></think><progress>40%</progress>", 0.4),
        ("<progress>10%</progress> or so\n</think>\n<progress>40%</progress>", 0.4),
        ("<think>it is <progress>10%</progress>", None),
        ("[THINK]maybe <progress>40%</progress> or", None),
        ("\u25c1think\u25b7maybe <progress>40%</progress>", None),
        (" <thinking>maybe <progress>40%</progress>", None),
        ("<reasoning>x</reasoning><progress>40%</progress>", 0.4),
        ("[THINK]<progress>10%</progress>[/THINK]<progress>40%</progress>", 0.4),
    ],
)
def test_progress_is_the_last_tagged_percentage(text: str, value: float | None) -> None:
    assert parse.progress(text) == value


@given(st.integers(0, 100), st.text(alphabet=st.characters(exclude_characters="<>")))
def test_text_around_a_tagged_number_is_ignored(number: int, text: str) -> None:
    assert parse.progress(f"{text}<progress>{number}%</progress>{text}") == pytest.approx(number / 100)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Yes, it is.", "yes"),
        ("Yes the task is done", "yes"),
        ("no", "no"),
        ("  **No**", "no"),
        ("Done: yes", None),
        ("maybe yes", None),
        ("1", None),
        ("Yes/No", None),
        ("Yes? No.", None),
        ("No, or rather: yes", None),
        ("Yes, let me look at the images.\n</think>\n\nno", "no"),
        ("<think>Yes, let me", None),
        ("No image was provided.", None),
        ("No images are visible, so I cannot say", None),
        ("No idea", None),
        ("No the drawer is open", "no"),
        ("No, there is no cube in it", "no"),
        ("Yes, no part of it is open", "yes"),
        ("Yes. Wait, no - it is open", None),
        ("No.\n\nActually yes, the cube is in it", None),
    ],
)
def test_first_word_is_the_choice(text: str, word: str | None) -> None:
    assert parse.first_word(text, ("yes", "no")) == word


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B", "B"),
        ("**A**", "A"),
        ("A.", "A"),
        ("A) the first", "A"),
        ("B is closer", "B"),
        ("A because it holds the cube", "A"),
        ("A\nThe cube is held.", "A"),
        ("A robot arm holds the cube: B", None),
        ("A moment ago the gripper was farther", None),
        ("A close call, but B", None),
        ("A or B", None),
        ("B: in A, the cube lies on the table", "B"),
    ],
)
def test_the_article_is_no_answer(text: str, letter: str | None) -> None:
    assert parse.first_word(text, ("A", "B", "C")) == letter


RANGES = "3\u20114;3\u20104;3\u20144;3 \u2212 4;3, 4;3 & 4;3 through 4;3 bis 4;3 \u00e0 4;3 or maybe 4"
MORE_RANGES = "3 (or 4);**3** or **4**;3->4;3|4;3\u301c4;3...4;3\u00b11;4,5"


@pytest.mark.parametrize(
    ("text", "grade"),
    [
        ("ANSWER: 3", "3"),
        ("ANSWER: 1. No: answer: **5**", "5"),
        ("ANSWER: 4/5", "4"),
        ("ANSWER: 4 - the cube is held", "4"),
        ("ANSWER: 7", None),
        ("3", None),
        ("ANSWER: 4.5", None),
        ("ANSWER: 3 or 4", None),
        ("ANSWER: 1 to 5", None),
        ("ANSWER: 3-4", None),
        ("Die T\u00fcr ist gro\u00df. ANSWER: 4", "4"),
        ("ANSWER: 4 (80 %)", "4"),
        ("ANSWER: 4. 2 of 3 steps are done", "4"),
        *((f"ANSWER: {text}", None) for text in f"{RANGES};{MORE_RANGES}".split(";")),
        ("ANSWER: 3 </think> ANSWER: 4", "4"),
    ],
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


@pytest.mark.parametrize("ending", ["x", "</progress", ""])
@pytest.mark.parametrize(
    "beginning", ["<progress>1", "<progress>", "ANSWER:", "ANSWER: 1", "1 or 1", "no", "A", "<think>"]
)
def test_a_long_answer_is_read_in_linear_time(beginning: str, ending: str) -> None:
    for filling in (" ", "9", "\n", "*", "(", "-", ".", "%"):
        text = beginning + filling * 200_000 + ending  # quadratic time would be hours in all
        assert parse.progress(text) is None
        assert parse.answer(text, ("yes", "no")) is None
        assert parse.first_word(text, ("yes", "no", "A")) in (None, "no", "A")
