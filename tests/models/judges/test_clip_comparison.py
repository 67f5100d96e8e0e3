"""Comparisons of two clips by a vision-language model."""

from __future__ import annotations

import numpy as np
import pytest
from scripted import Scripted, brightness, images, ramp, text

from embodied_rm.models.judges.chat import Answer, Query
from embodied_rm.models.judges.clip_comparison import FRAMES_PER_CLIP, VlmClipJudge

DARK, BRIGHT = ramp(9).views, ramp(9, start=100).views


def brighter_clip(query: Query) -> Answer:
    """Say which clip is brighter at its end."""
    half = len(query.parts[1:-1]) // 2
    first = Query(parts=query.parts[1 : 1 + half])
    return Answer(text="A" if brightness(first) > brightness(query) else "B")


@pytest.mark.parametrize(("clips", "expected"), [((DARK, BRIGHT), "second"), ((BRIGHT, DARK), "first")])
def test_a_judge_that_sees_says_the_same_in_both_orders(clips, expected) -> None:
    assert VlmClipJudge(Scripted(brighter_clip)).compare([clips], ["make it bright"]) == [expected]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ("A A", "contradiction"),
        ("B B", "contradiction"),
        ("C C", "neither"),
        ("A C", "neither"),
        ("A B", "first"),
        ("B A", "second"),
        ("A perhaps", "unanswered"),
    ],
)
def test_answers_that_depend_on_the_order_are_contradictions(answers: str, expected: str) -> None:
    texts = iter(answers.split())
    judge = VlmClipJudge(Scripted(lambda query: Answer(text=next(texts))))
    assert judge.compare([(DARK, BRIGHT)], ["make it bright"]) == [expected]


def test_a_failed_query_is_unanswered_and_the_others_are_not() -> None:
    answers = iter([Answer(failure="timeout"), Answer(text="A"), Answer(text="A"), Answer(text="B")])
    judge = VlmClipJudge(Scripted(lambda query: next(answers)))
    assert judge.compare([(DARK, BRIGHT)] * 2, ["make it bright"] * 2) == ["unanswered", "first"]


def test_log_probabilities_choose_the_most_likely_letter() -> None:
    def answer(query: Query) -> Answer:
        assert query.choices == ("A", "B", "C")
        better = brighter_clip(query).text
        return Answer(logprobs={letter: -0.1 if letter == better else -3.0 for letter in query.choices})

    assert VlmClipJudge(Scripted(answer), use_logprobs=True).compare([(DARK, BRIGHT)], ["x"]) == ["second"]


def test_a_query_has_the_instruction_and_the_first_and_last_frames_of_both_clips() -> None:
    chat = Scripted(brighter_clip)
    VlmClipJudge(chat).compare([(DARK, BRIGHT)], ["make it bright"])
    for query, clips in zip(chat.queries, ((DARK, BRIGHT), (BRIGHT, DARK)), strict=True):
        frames = images(query)
        assert len(frames) == 2 * FRAMES_PER_CLIP
        for clip, part in zip(clips, (frames[:FRAMES_PER_CLIP], frames[FRAMES_PER_CLIP:]), strict=True):
            assert np.array_equal(part[0], clip["front"][0]) and np.array_equal(part[-1], clip["front"][-1])
        assert "make it bright" in text(query)


def test_a_clip_of_one_frame_is_one_image() -> None:
    chat = Scripted(brighter_clip)
    short = {name: frames[:1] for name, frames in DARK.items()}
    VlmClipJudge(chat).compare([(short, short)], ["x"])
    assert len(images(chat.queries[0])) == 2
