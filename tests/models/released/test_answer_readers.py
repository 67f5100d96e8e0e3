"""Answers have the values that the code of the models' authors reads in them; what it cannot read has none.

The values were computed by that code (`docs/released_models.md`). Where it replaces an answer that it cannot read by a
number, None is expected here; so are a cut-off tag, `nan` and `inf`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import pytest

from embodied_rm.models.released.answer_readers import (
    PROGRESS_PATTERNS,
    read_comparison,
    read_completion,
    read_grade,
    read_hop,
    read_number,
    read_progress,
)

GRADES = {
    "ANSWER: 4": 4, "ANSWER:4": 4, "answer: 4": 4, "Answer: 4.": 4, "**ANSWER: 4**": 4, "ANSWER: **4**": 4,
    "ANSWER: <4>": 4, "ANSWER: [3]": 3, "ANSWER: (3)": 3, 'ANSWER: "3"': 3, "ANSWER: `3`": 3, "ANSWER:\n4": 4,
    "ANSWER: 4/5": 4, "ANSWER: 4 out of 5": 4, "ANSWER: 4 - Near Completion": 4, "ANSWER: four": None, "4": 4,
    "Score: 4": 4, "Answer=4": 4, "The answer is 4": 4, "ANSWER: 2 ... ANSWER: 5": 2, "ANSWER: 0": None,
    "ANSWER: 6": None, "ANSWER: 4.5": 4, "ANSWER: -3": 3, "": None, "I cannot tell": None,
    "ANSWER: <score>4</score>": 4, "ANSWER: score 3": 3, "1 - No Success": 1,
    "ANSWER: 45": None, "ANSWER: 10": None, "between 3 and 4": None,  # two re-implementations differ
}  # fmt: skip
HOPS = {
    "<score>+30%</score>": 0.3, "<score>-25%</score>": -0.25, "<score>0%</score>": 0.0, "<score>30</score>": 0.3,
    "<score> +30 % </score>": 0.3, "<score>+150%</score>": 1.0, "<score>-120%</score>": -1.0, "+30%": 0.3, "30": 0.3,
    "-25%": -0.25, "<score>12.5%</score>": 0.125, "<score>1e1</score>": 0.1, "<score>.5</score>": 0.005,
    "<score>10%</score><score>20%</score>": 0.2, "<score>+30%</score> done": 0.3, "<score>0.3</score>": 0.003,
    "```\n<score>+30%</score>\n```": 0.3,
    "<score>-25.0.0.5.6": None, "<score>-25.0.0.5.6</score>": None, "<score>50%</score> or <score>-NN%</score>": None,
    "<score>+NN%</score>": None, "<score>12,5%</score>": None, "<score>+ 30%</score>": None,
    "<SCORE>+30%</SCORE>": None, "score: +30%": None, "": None, "<score></score>": None, "<score>−25%</score>": None,
    "<score>+30 percent</score>": None, "<score>+30%</score": None,
    "<score>+1": None, "<score>+30%": None, "<score>nan</score>": None, "<score>inf</score>": None,
}  # fmt: skip
COMPARISONS = {
    '{"more_complete_image": "ImageB"}': 1.0, '{ "more_complete_image": "ImageA" }': -1.0,
    'text ```json\n{"more_complete_image": "ImageB"}\n```': 1.0,
    '{"more_complete_image": "ImageA"} {"more_complete_image": "ImageB"}': -1.0,
    '{ "more_complete_image": "ImageB"': 1.0, "ImageB is closer": 1.0, "Image B is closer": None,
    "ImageA vs ImageB: ImageA": -1.0, '{"more_complete_image": "Image B"}': None, '{"more_complete_image": "B"}': None,
    '{"more_complete_image": ["ImageB"]}': 1.0, '{"a": {"more_complete_image": "ImageB"}}': 1.0,
    '{"x":1} {"more_complete_image": "ImageB"}': 1.0, "": None, "neither": None,
}  # fmt: skip
PROGRESS = {
    '{"completion_progress": 0.4}': 0.4, '{ "completion_progress": "0.4" }': 0.4, '{"completion_progress": 1.2}': 1.0,
    '{"completion_progress": -0.1}': 0.0, '{"completion_progress": "NA"}': 0.0, '{"completion_progress": "na"}': 0.0,
    '{ "completion_progress": 0.4': 0.4, '{"completion_progress": 0.2} {"completion_progress": 0.9}': 0.2, "0.7": 0.7,
    "Progress: 0.7": 0.7, '{"completion_progress": null}': None, '{"completion_progress": "40%"}': 1.0,
    '{"completion_progress": 40}': 1.0, '{"completion_progress": [0.4]}': 0.4, "": None, "unclear": None,
    '```json\n{"completion_progress": 0.6}\n```': 0.6, '{"completion_progress": 1e-1}': 0.1,
    '{"completion_progress": true}': None, '{"completion_progress": NaN}': None, '{"completion_progress": "nan"}': None,
}  # fmt: skip
COMPLETIONS = {
    '{"task_completed": "yes"}': 1.0, '{"task_completed": "no"}': 0.0, '{"task_completed": "Yes"}': 1.0,
    '{"task_completed": "no"} {"task_completed": "yes"}': 1.0, '{"task_completed": yes}': 1.0,
    '{"task_completed": true}': None, "yes": 1.0, "Yes.": 1.0, "no": 0.0, "not done": 0.0, "": None,
    '{ "task_completed": "yes"': 1.0, "{'task_completed': 'yes'}": 1.0,
}  # fmt: skip
NUMBERS = {
    "35": 35.0, "+35": 35.0, "-20": -20.0, "0": 0.0, "1": 1.0, "0.9": 0.9, "1e1": 10.0, " 35 ": 35.0, "35.5": 35.5,
    ".5": 0.5, "150": 150.0, "-150": -150.0, "35.": 35.0, "1_0": 10.0, "": None, "abc": None, "+": None, "nan": None,
    "inf": None, "1e-2": 0.01, "-0": 0.0, "035": 35.0, "  7\n": 7.0, "+.5": 0.5, "-1.5e1": -15.0, "- 5": None,
    ".": None,
    "1,000": 1.0, "35%": 35.0, "3 5": 3.0, "7\n8": 7.0, "0,9": 0.0, "35 percent": 35.0,  # errors in the authors' code
}  # fmt: skip
TABLES: list[tuple[Callable[[str], float | None], dict[str, float | None]]] = [
    (read_grade, dict(GRADES)),
    (read_hop, dict(HOPS)),
    (read_comparison, dict(COMPARISONS)),
    (read_progress, dict(PROGRESS)),
    (read_completion, dict(COMPLETIONS)),
    (read_number, dict(NUMBERS)),
]


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [(read, text, value) for read, table in TABLES for text, value in table.items()],
    ids=lambda part: part.__name__ if callable(part) else None,
)
def test_an_answer_has_the_value_that_its_authors_read(
    read: Callable[[str], float | None], text: str, value: float | None
) -> None:
    assert read(text) == (value if value is None else pytest.approx(value))


@pytest.mark.parametrize("piece", ["1", "1.", "1 ", ".", "0.", "score", "score: "])
def test_a_progress_is_looked_for_in_linear_time(piece: str) -> None:
    """At the end of a text, a number of a million digits was looked for from each of them."""
    assert read_progress(f"about {piece * 500_000}x") in (None, 0.0, 1.0)


def test_the_number_at_the_end_is_that_of_the_authors_pattern() -> None:
    pattern = re.compile(r"([0-9]*\.?[0-9]+)\s*$")
    for characters in itertools.chain.from_iterable(itertools.product("2.a \n", repeat=length) for length in range(7)):
        text = "".join(characters)
        matches = [each.search(text) for each in (pattern, PROGRESS_PATTERNS[3])]
        assert len({match and match[1] for match in matches}) == 1, text
