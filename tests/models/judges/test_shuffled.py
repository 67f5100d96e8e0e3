"""Moments of a whole film out of order: each gets what was said of it, and nobody can be paid by it."""

from __future__ import annotations

import re

import numpy as np
import pytest
from models.judges.scripted import Scripted, pictures, ramp

from embodied_rm.errors import UserError
from embodied_rm.models.base import Judge, Retrospective
from embodied_rm.models.fold import fold, fold_film, views_at
from embodied_rm.models.judges.chat import Answer, Query
from embodied_rm.models.judges.shuffled import MOMENTS, ShuffledJudge
from embodied_rm.types import Views


def brightness_of_each(query: Query) -> Answer:
    """The truth about every moment, in the order in which they are shown."""
    lines = [f"moment {i}: <progress>{int(p[4, 4, 0])}%</progress>" for i, p in enumerate(pictures(query)) if i]
    return Answer(text="\n".join(lines))


def test_each_moment_gets_what_was_said_of_it_however_they_are_shuffled() -> None:
    chat = Scripted(brightness_of_each)
    judge = ShuffledJudge(chat)
    assert isinstance(judge, Judge) and isinstance(judge, Retrospective)
    (curve,) = fold(judge, [ramp(11, step=10)])
    assert curve.value == pytest.approx(np.arange(11) / 10) and curve.valid.all()
    order = [int(picture[4, 4, 0]) for picture in pictures(chat.asked[0])]
    assert order[0] == 0 and order != sorted(order), "the first one is what it is, the others are out of order"


def test_of_a_long_film_some_are_asked_about_and_between_them_is_a_straight_line() -> None:
    chat = Scripted(brightness_of_each)
    episode = ramp(90, step=1)
    blocks = [Views(names=("front",), frames=episode.views["front"][at : at + 32][:, None]) for at in range(0, 90, 32)]
    curve = fold_film(ShuffledJudge(chat), episode.instruction, blocks)
    assert len(pictures(chat.asked[0])) == MOMENTS
    assert curve.value == pytest.approx(np.arange(90) / 100, abs=0.02)


def test_what_is_not_told_of_is_left_out_and_nothing_told_is_nothing_scored() -> None:
    def half(query: Query) -> Answer:
        text = brightness_of_each(query).text or ""
        return Answer(text="\n".join(line for line in text.split("\n") if int(re.findall(r"\d+", line)[0]) % 2))

    (curve,) = fold(ShuffledJudge(Scripted(half)), [ramp(11, step=10)])
    assert curve.value[:9] == pytest.approx(np.arange(9) / 10, abs=0.21)
    judge = ShuffledJudge(Scripted(lambda query: Answer(text="I see a robot.")))
    (curve,) = fold(judge, [ramp(6)])
    assert curve.valid.tolist() == [True, *[False] * 5] and judge.faults == {"unparsable": 5}
    late = ShuffledJudge(Scripted(lambda query: Answer(fault="timeout")))
    fold(late, [ramp(6)])
    assert late.faults == {"timeout": 5}


def test_it_has_no_say_before_the_end() -> None:
    judge, episode = ShuffledJudge(Scripted(brightness_of_each)), ramp(3)
    with pytest.raises(UserError, match="looks at the whole film before it says anything"):
        judge.begin(views_at([episode], 0), ["a"])
    with pytest.raises(UserError, match="nobody can be paid by it"):
        judge.advance(None, views_at([episode], 1))  # type: ignore[arg-type]


def test_frames_that_show_nothing_take_no_place() -> None:
    episode = ramp(11, step=10)
    episode.views["front"][5] = 9
    chat = Scripted(brightness_of_each)
    (curve,) = fold(ShuffledJudge(chat), [episode])
    assert len(pictures(chat.asked[0])) == 10
    assert curve.value == pytest.approx(np.arange(11) / 10)
