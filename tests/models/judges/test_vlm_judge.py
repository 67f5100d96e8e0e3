"""A judge keeps the contract: causal, row by row, the same number online and in videos; no answer is no score."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.judges.scripted import Scripted, brightness, images, ramp, text

from embodied_rm.errors import UserError
from embodied_rm.models.judges.chat import Answer, Query
from embodied_rm.models.judges.questions import LOGPROB_QUESTIONS, TEXT_QUESTIONS, CloserQuestion, ProgressQuestion
from embodied_rm.models.judges.vlm_judge import VlmJudge
from embodied_rm.models.reward_model import DescribedRewardModel, InputSpec, SerializableState
from embodied_rm.models.scoring import score_episodes, score_video, views_at
from embodied_rm.types import Episode, Views


def percent(query: Query) -> Answer:
    """How bright it is now."""
    return Answer(text=f"<progress>{min(brightness(query), 100)}%</progress>")


def video(episode: Episode, size: int = 4) -> list[Views]:
    """The episode in blocks."""
    return [
        Views(
            names=tuple(episode.views),
            frames=np.stack([frames[at : at + size] for frames in episode.views.values()], axis=1),
        )
        for at in range(0, len(episode), size)
    ]


def test_a_judge_says_what_it_is_told_of_each_frame() -> None:
    judge = VlmJudge(Scripted(percent), ProgressQuestion())
    assert isinstance(judge, DescribedRewardModel) and not judge.capabilities.predicts_success
    (curve,) = score_episodes(judge, [ramp(6)])
    assert curve.progress == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.5])
    assert curve.valid.all() and np.isnan(curve.success[1:]).all() and (curve.subtask[1:] == -1).all()


@pytest.mark.parametrize(
    "question", [*TEXT_QUESTIONS.values(), *LOGPROB_QUESTIONS.values()], ids=[*TEXT_QUESTIONS, *LOGPROB_QUESTIONS]
)
def test_appending_frames_and_neighbors_change_nothing(question) -> None:
    def answer(query: Query) -> Answer:
        level = -0.1 * (brightness(query) % 17)
        if query.choices:
            return Answer(logprobs={word: level * (i + 1) for i, word in enumerate(query.choices)})
        word = ("yes", "no", "A", "B", "C")[brightness(query) % 5]
        return Answer(text=f"{word} <progress>{brightness(query) % 101}%</progress> ANSWER: {brightness(query) % 6}")

    judge = VlmJudge(Scripted(answer), question)
    long, short, other = ramp(9, step=13), ramp(6, step=13), ramp(8, start=90, step=-7)
    whole, part, _ = score_episodes(judge, [long, short, other])
    (alone,) = score_episodes(judge, [long])
    for name in vars(whole):
        assert np.array_equal(getattr(whole, name), getattr(alone, name), equal_nan=name in ("success", "ood")), name
        assert np.array_equal(getattr(whole, name)[:6], getattr(part, name), equal_nan=name in ("success", "ood")), name
    ahead = score_video(judge, long.instruction, video(long))
    assert np.array_equal(ahead.progress, whole.progress) and np.array_equal(ahead.valid, whole.valid)


def test_all_rows_are_asked_about_at_once_and_all_frames_of_a_block_too() -> None:
    chat = Scripted(percent)
    score_episodes(VlmJudge(chat, ProgressQuestion()), [ramp(5), ramp(5)])
    assert (chat.calls, len(chat.asked)) == (4, 8)
    chat = Scripted(percent)
    score_video(VlmJudge(chat, ProgressQuestion()), "make it bright", video(ramp(9)))
    assert (chat.calls, len(chat.asked)) == (3, 8)


@given(st.lists(st.sampled_from(["fine", "timeout", "nonsense"]), min_size=1, max_size=12))
def test_what_is_not_answered_keeps_its_potential_and_is_counted(outcomes: list[str]) -> None:
    def answer(query: Query) -> Answer:
        outcome = outcomes[brightness(query) // 10 - 1]
        if outcome == "timeout":
            return Answer(failure="timeout")
        return percent(query) if outcome == "fine" else Answer(text="Well.")

    judge = VlmJudge(Scripted(answer), ProgressQuestion())
    (curve,) = score_episodes(judge, [ramp(len(outcomes) + 1, step=10)])
    fine = np.array([outcome == "fine" for outcome in outcomes])
    assert curve.valid[1:].tolist() == fine.tolist()
    scored = np.where(fine, np.minimum(0.1 * np.arange(1, len(outcomes) + 1), 1.0), -1)
    assert curve.progress[1:] == pytest.approx(np.maximum.accumulate(np.maximum(scored, 0)))
    wrong = Counter({"nonsense": "unparsable"}.get(outcome, outcome) for outcome in outcomes if outcome != "fine")
    assert judge.failures == wrong


@given(st.lists(st.booleans(), min_size=2, max_size=10))
def test_what_looks_back_looks_at_the_frame_last_scored_online_and_in_a_video_alike(answered: list[bool]) -> None:
    seen: list[tuple[int, int]] = []

    def answer(query: Query) -> Answer:
        before, now = (int(image[4, 4, 0]) // 10 for image in images(query))
        seen.append((before, now))
        return Answer(text="B" if answered[now - 1] else "I cannot tell.")

    episode = ramp(len(answered) + 1)
    (online,) = score_episodes(VlmJudge(Scripted(answer), CloserQuestion()), [episode])
    expected, last = [], 0
    for now, fine in enumerate(answered, start=1):
        expected.append((last, now))
        last = now if fine else last
    assert seen == expected
    offline = score_video(VlmJudge(Scripted(answer), CloserQuestion()), episode.instruction, video(episode))
    assert np.array_equal(online.progress, offline.progress) and np.array_equal(online.valid, offline.valid)
    assert online.progress[-1] == pytest.approx(1 - 0.9 ** sum(answered))


def test_a_frame_that_shows_nothing_is_not_asked_about() -> None:
    episode = ramp(5)
    episode.views["front"][2] = 7
    chat = Scripted(percent)
    (curve,) = score_episodes(VlmJudge(chat, ProgressQuestion()), [episode])
    assert curve.valid.tolist() == [True, True, False, True, True] and len(chat.asked) == 3
    assert curve.progress == pytest.approx([0, 0.1, 0.1, 0.3, 0.4])
    assert chat.calls == 3, "nobody is asked nothing"


def test_only_views_that_are_there_are_shown_each_with_its_name() -> None:
    episode = ramp(3, views=("front", "wrist"))
    chat = Scripted(percent)
    judge = VlmJudge(chat, ProgressQuestion())
    memory = judge.reset(views_at([episode], 0), [episode.instruction])
    one = views_at([episode], 1)
    judge.step(memory, Views(names=one.names, frames=one.frames, present=np.array([[True, False]])))
    assert len(images(chat.asked[0])) == 3, "two before, one now"
    assert text(chat.asked[0]).count("camera wrist") == 1


def test_a_goal_image_is_shown_whatever_other_views_there_are() -> None:
    episode, goal = ramp(3, views=("front", "wrist")), ramp(1, views=("wrist",), start=200)
    chat = Scripted(percent)
    score_episodes(VlmJudge(chat, ProgressQuestion()), [episode], [goal])
    assert "when the task is done:\ncamera wrist" in text(chat.asked[0])
    assert images(chat.asked[0])[0][4, 4, 0] == 200
    with pytest.raises(UserError, match="a goal image shows none of the views front"):
        score_episodes(VlmJudge(chat, ProgressQuestion()), [ramp(3)], [ramp(1, views=("top",))])


def test_a_sentence_cannot_bring_tokens_of_its_own() -> None:
    chat = Scripted(percent)
    judge = VlmJudge(chat, ProgressQuestion())
    episode = ramp(2)
    judge.step(judge.reset(views_at([episode], 0), ["lift <|image_pad|><image> it"]), views_at([episode], 1))
    assert "lift (|image_pad|)(image) it" in text(chat.asked[0])


def test_its_memory_can_be_stored_and_goes_on_as_before() -> None:
    question = TEXT_QUESTIONS["rubric"]
    judge = VlmJudge(Scripted(lambda query: Answer(text=f"ANSWER: {brightness(query) % 5 + 1}")), question)
    episodes = [ramp(6, views=("front", "wrist")), ramp(6, views=("front", "wrist"), start=3)]
    memory = judge.reset(views_at(episodes, 0), ["a", "b"], goal=views_at(episodes, 5))
    for t in range(1, 4):
        _, memory = judge.step(memory, views_at(episodes, t))
    assert isinstance(memory, SerializableState)
    other = judge.reset(views_at(episodes[:1], 5), ["c"]).from_state_dict(memory.state_dict())
    asked = [VlmJudge(Scripted(judge.chat.answer), question).step(m, views_at(episodes, 4))[1] for m in (memory, other)]
    assert asked[0].state_dict().keys() == asked[1].state_dict().keys()
    for name, tensor in asked[0].state_dict().items():
        assert tensor.equal(asked[1].state_dict()[name]), name
    swapped = other.take(np.array([1, 0])).put(np.array([0]), other.take(np.array([0])))
    assert [row.instruction for row in swapped.contexts] == ["a", "a"]


def test_wrong_shapes_are_refused_by_name() -> None:
    judge, one, two = (
        VlmJudge(Scripted(percent), ProgressQuestion(), InputSpec(views=("front",))),
        ramp(3),
        ramp(3, views=("top",)),
    )
    memory = judge.reset(views_at([one], 0), ["a"])
    with pytest.raises(UserError, match="one instruction"):
        judge.reset(views_at([one], 0), ["a", "b"])
    with pytest.raises(UserError, match="advance needs views of 1 environments, got 2"):
        judge.step(memory, views_at([one, one], 1))
    with pytest.raises(UserError, match="began with the views front, got top"):
        judge.step(memory, views_at([two], 1))
