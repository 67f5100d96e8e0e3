"""Moments of a whole video out of order: each gets what was said of it, and nobody can be paid by it."""

from __future__ import annotations

import re

import numpy as np
import pytest
from models.judges.scripted import Scripted, images, ramp

from embodied_rm.errors import UserError
from embodied_rm.models.judges.chat import Answer, Query
from embodied_rm.models.judges.shuffled import MAX_FRAMES, ShuffledJudge
from embodied_rm.models.reward_model import DescribedRewardModel, VideoRewardModel
from embodied_rm.models.scoring import score_episodes, score_video, views_at
from embodied_rm.types import Views


def brightness_of_each(query: Query) -> Answer:
    """The truth about every moment, in the order in which they are shown."""
    lines = [f"moment {i}: <progress>{int(p[4, 4, 0])}%</progress>" for i, p in enumerate(images(query)) if i]
    return Answer(text="\n".join(lines))


def test_each_timestep_gets_what_was_said_of_it_however_they_are_shuffled() -> None:
    chat = Scripted(brightness_of_each)
    judge = ShuffledJudge(chat)
    assert isinstance(judge, DescribedRewardModel) and isinstance(judge, VideoRewardModel)
    (curve,) = score_episodes(judge, [ramp(11, step=10)])
    assert curve.progress == pytest.approx(np.arange(11) / 10) and curve.valid.all()
    order = [int(image[4, 4, 0]) for image in images(chat.asked[0])]
    assert order[0] == 0 and order != sorted(order), "the first one is what it is, the others are out of order"


def test_of_a_long_video_some_are_asked_about_and_between_them_is_a_straight_line() -> None:
    chat = Scripted(brightness_of_each)
    episode = ramp(90, step=1)
    blocks = [Views(names=("front",), frames=episode.views["front"][at : at + 32][:, None]) for at in range(0, 90, 32)]
    curve = score_video(ShuffledJudge(chat), episode.instruction, blocks)
    assert len(images(chat.asked[0])) == MAX_FRAMES
    assert curve.progress == pytest.approx(np.arange(90) / 100, abs=0.02)


def test_what_is_not_told_of_is_left_out_and_nothing_told_is_nothing_scored() -> None:
    def half(query: Query) -> Answer:
        text = brightness_of_each(query).text or ""
        return Answer(text="\n".join(line for line in text.split("\n") if int(re.findall(r"\d+", line)[0]) % 2))

    (curve,) = score_episodes(ShuffledJudge(Scripted(half)), [ramp(11, step=10)])
    assert curve.progress[:9] == pytest.approx(np.arange(9) / 10, abs=0.21)
    judge = ShuffledJudge(Scripted(lambda query: Answer(text="I see a robot.")))
    (curve,) = score_episodes(judge, [ramp(6)])
    assert curve.valid.tolist() == [True, *[False] * 5] and judge.failures == {"unparsable": 5}
    late = ShuffledJudge(Scripted(lambda query: Answer(failure="timeout")))
    score_episodes(late, [ramp(6)])
    assert late.failures == {"timeout": 5}


def test_it_has_no_say_before_the_end() -> None:
    judge, episode = ShuffledJudge(Scripted(brightness_of_each)), ramp(3)
    with pytest.raises(UserError, match="looks at the whole video before it says anything"):
        judge.reset(views_at([episode], 0), ["a"])
    with pytest.raises(UserError, match="nobody can be paid by it"):
        judge.step(None, views_at([episode], 1))  # type: ignore[arg-type]


def test_frames_that_show_nothing_take_no_place() -> None:
    episode = ramp(11, step=10)
    episode.views["front"][5] = 9
    chat = Scripted(brightness_of_each)
    (curve,) = score_episodes(ShuffledJudge(chat), [episode])
    assert len(images(chat.asked[0])) == 10
    assert curve.progress == pytest.approx(np.arange(11) / 10)
