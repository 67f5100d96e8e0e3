"""`ShuffledJudge` scores shuffled frames of complete videos, and cannot be used online."""

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


def answer_brightness(query: Query) -> Answer:
    """Return the true progress of every frame, in the order of the query."""
    lines = [f"moment {i}: <progress>{int(p[4, 4, 0])}%</progress>" for i, p in enumerate(images(query)) if i]
    return Answer(text="\n".join(lines))


def test_each_frame_gets_its_own_progress_despite_shuffling() -> None:
    chat = Scripted(answer_brightness)
    judge = ShuffledJudge(chat)
    assert isinstance(judge, DescribedRewardModel) and isinstance(judge, VideoRewardModel)
    (curve,) = score_episodes(judge, [ramp(11, step=10)])
    assert curve.progress == pytest.approx(np.arange(11) / 10) and curve.valid.all()
    order = [int(image[4, 4, 0]) for image in images(chat.queries[0])]
    assert order[0] == 0 and order != sorted(order), "the first frame comes first, the others are shuffled"


def test_long_video_is_subsampled_and_interpolated() -> None:
    chat = Scripted(answer_brightness)
    episode = ramp(90, step=1)
    blocks = [Views(names=("front",), frames=episode.views["front"][at : at + 32][:, None]) for at in range(0, 90, 32)]
    curve = score_video(ShuffledJudge(chat), episode.instruction, blocks)
    assert len(images(chat.queries[0])) == MAX_FRAMES
    assert curve.progress == pytest.approx(np.arange(90) / 100, abs=0.02)


def test_frames_next_to_an_unanswered_one_are_invalid_and_counted() -> None:
    def answer_but_forty(query: Query) -> Answer:
        text = answer_brightness(query).text or ""
        return Answer(text=text.replace("<progress>40%", "<progress>forty"))

    judge = ShuffledJudge(Scripted(answer_but_forty))
    (curve,) = score_episodes(judge, [ramp(31, step=2)])  # every second frame is shown
    unanswered = [19, 20, 21]  # 40 is the brightness of frame 20
    assert np.flatnonzero(~curve.valid).tolist() == unanswered and judge.failures == {"unparsable": 3}
    assert curve.progress == pytest.approx(np.arange(31) / 50)


def test_an_answer_that_is_cut_off_scores_what_it_has_answered() -> None:
    judge = ShuffledJudge(Scripted(lambda query: Answer(text="moment 1: <progress>40%</progress>\nmoment 2: <prog")))
    (curve,) = score_episodes(judge, [ramp(16)])
    assert curve.valid.sum() == 2 and judge.failures == {"unparsable": 14}


@pytest.mark.parametrize(
    "form", ["**moment {n}:** {tag}", "Moment {n} - {tag}", "<think>none</think>moment {n}\n{tag}"]
)
def test_markup_around_frame_numbers_is_ignored(form: str) -> None:
    def answer_in_form(query: Query) -> Answer:
        found = re.findall(r"moment (\d+): (.*)", answer_brightness(query).text or "")
        return Answer(text="\n".join(form.format(n=number, tag=tag) for number, tag in found))

    (curve,) = score_episodes(ShuffledJudge(Scripted(answer_in_form)), [ramp(2)])
    assert curve.valid.all()


def test_without_any_answer_all_frames_but_the_first_are_invalid() -> None:
    judge = ShuffledJudge(Scripted(lambda query: Answer(text="I see a robot.")))
    (curve,) = score_episodes(judge, [ramp(6)])
    assert curve.valid.tolist() == [True, *[False] * 5] and judge.failures == {"unparsable": 5}
    failing_judge = ShuffledJudge(Scripted(lambda query: Answer(failure="timeout")))
    score_episodes(failing_judge, [ramp(6)])
    assert failing_judge.failures == {"timeout": 5}


def test_online_use_is_rejected() -> None:
    judge, episode = ShuffledJudge(Scripted(answer_brightness)), ramp(3)
    with pytest.raises(UserError, match="needs the complete video"):
        judge.reset(views_at([episode], 0), ["a"])
    with pytest.raises(UserError, match="not as a reward"):
        judge.step(None, views_at([episode], 1))  # type: ignore[arg-type]


def test_invisible_frames_are_left_out() -> None:
    episode = ramp(11, step=10)
    episode.views["front"][5] = 9
    chat = Scripted(answer_brightness)
    (curve,) = score_episodes(ShuffledJudge(chat), [episode])
    assert len(images(chat.queries[0])) == 10
    assert curve.progress == pytest.approx(np.arange(11) / 10)
