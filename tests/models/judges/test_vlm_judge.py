"""`VlmJudge` is a causal `RewardModel` with independent rows, and gives no score without an answer."""

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
    """Answer with the brightness of the current frame."""
    return Answer(text=f"<progress>{min(brightness(query), 100)}%</progress>")


def split_blocks(episode: Episode, size: int = 4) -> list[Views]:
    """Split an episode into blocks of frames."""
    return [
        Views(
            names=tuple(episode.views),
            frames=np.stack([frames[at : at + size] for frames in episode.views.values()], axis=1),
        )
        for at in range(0, len(episode), size)
    ]


def test_scores_are_the_answers() -> None:
    judge = VlmJudge(Scripted(percent), ProgressQuestion())
    assert isinstance(judge, DescribedRewardModel) and not judge.capabilities.predicts_success
    (curve,) = score_episodes(judge, [ramp(6)])
    assert curve.progress == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.5])
    assert curve.valid.all() and np.isnan(curve.success[1:]).all() and (curve.subtask[1:] == -1).all()


@pytest.mark.parametrize(
    "question", [*TEXT_QUESTIONS.values(), *LOGPROB_QUESTIONS.values()], ids=[*TEXT_QUESTIONS, *LOGPROB_QUESTIONS]
)
def test_scores_do_not_depend_on_later_frames_or_other_rows(question) -> None:
    def answer(query: Query) -> Answer:
        level = -0.1 * (brightness(query) % 17)
        if query.choices:
            return Answer(logprobs={word: level * (i + 1) for i, word in enumerate(query.choices)})
        word = ("yes", "no", "A", "B", "C")[brightness(query) % 5]
        return Answer(text=f"{word} <progress>{brightness(query) % 101}%</progress> ANSWER: {brightness(query) % 6}")

    judge = VlmJudge(Scripted(answer), question)
    long, short, other = ramp(9, step=13), ramp(6, step=13), ramp(8, start=90, step=-7)
    long_output, short_output, _ = score_episodes(judge, [long, short, other])
    (single_output,) = score_episodes(judge, [long])
    for name, column in vars(long_output).items():
        equal_nan = name in ("success", "ood")
        assert np.array_equal(column, getattr(single_output, name), equal_nan=equal_nan), name
        assert np.array_equal(column[:6], getattr(short_output, name), equal_nan=equal_nan), name
    video_output = score_video(judge, long.instruction, split_blocks(long))
    assert np.array_equal(video_output.progress, long_output.progress)
    assert np.array_equal(video_output.valid, long_output.valid)


def test_queries_of_all_rows_or_all_frames_of_a_block_are_sent_together() -> None:
    chat = Scripted(percent)
    score_episodes(VlmJudge(chat, ProgressQuestion()), [ramp(5), ramp(5)])
    assert (chat.calls, len(chat.queries)) == (4, 8)
    chat = Scripted(percent)
    score_video(VlmJudge(chat, ProgressQuestion()), "make it bright", split_blocks(ramp(9)))
    assert (chat.calls, len(chat.queries)) == (3, 8)


@given(st.lists(st.sampled_from(["fine", "timeout", "nonsense"]), min_size=1, max_size=12))
def test_unanswered_frames_keep_the_potential_and_are_counted(outcomes: list[str]) -> None:
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
    failures = Counter({"nonsense": "unparsable"}.get(outcome, outcome) for outcome in outcomes if outcome != "fine")
    assert judge.failures == failures


@given(st.lists(st.booleans(), min_size=2, max_size=10))
def test_previous_frame_is_the_last_scored_one_online_and_offline(answered: list[bool]) -> None:
    frame_pairs: list[tuple[int, int]] = []

    def answer(query: Query) -> Answer:
        previous, current = (int(image[4, 4, 0]) // 10 for image in images(query))
        frame_pairs.append((previous, current))
        return Answer(text="B" if answered[current - 1] else "I cannot tell.")

    episode = ramp(len(answered) + 1)
    (online,) = score_episodes(VlmJudge(Scripted(answer), CloserQuestion()), [episode])
    expected, last_scored = [], 0
    for current, is_answered in enumerate(answered, start=1):
        expected.append((last_scored, current))
        last_scored = current if is_answered else last_scored
    assert frame_pairs == expected
    offline = score_video(VlmJudge(Scripted(answer), CloserQuestion()), episode.instruction, split_blocks(episode))
    assert np.array_equal(online.progress, offline.progress) and np.array_equal(online.valid, offline.valid)
    assert online.progress[-1] == pytest.approx(1 - 0.9 ** sum(answered))


def test_invisible_frame_is_not_queried() -> None:
    episode = ramp(5)
    episode.views["front"][2] = 7
    chat = Scripted(percent)
    (curve,) = score_episodes(VlmJudge(chat, ProgressQuestion()), [episode])
    assert curve.valid.tolist() == [True, True, False, True, True] and len(chat.queries) == 3
    assert curve.progress == pytest.approx([0, 0.1, 0.1, 0.3, 0.4])
    assert chat.calls == 3, "no empty call"


def test_queries_contain_the_present_views_with_their_names() -> None:
    episode = ramp(3, views=("front", "wrist"))
    chat = Scripted(percent)
    judge = VlmJudge(chat, ProgressQuestion())
    state = judge.reset(views_at([episode], 0), [episode.instruction])
    views = views_at([episode], 1)
    judge.step(state, Views(names=views.names, frames=views.frames, present=np.array([[True, False]])))
    assert len(images(chat.queries[0])) == 3, "two before, one now"
    assert text(chat.queries[0]).count("camera wrist") == 1


def test_goal_image_of_one_view_is_in_the_query() -> None:
    episode, goal = ramp(3, views=("front", "wrist")), ramp(1, views=("wrist",), start=200)
    chat = Scripted(percent)
    score_episodes(VlmJudge(chat, ProgressQuestion()), [episode], [goal])
    assert "when the task is done:\ncamera wrist" in text(chat.queries[0])
    assert images(chat.queries[0])[0][4, 4, 0] == 200
    with pytest.raises(UserError, match="the goal images have none of the views front"):
        score_episodes(VlmJudge(chat, ProgressQuestion()), [ramp(3)], [ramp(1, views=("top",))])


def test_instruction_cannot_contain_special_tokens() -> None:
    chat = Scripted(percent)
    judge = VlmJudge(chat, ProgressQuestion())
    episode = ramp(2)
    judge.step(judge.reset(views_at([episode], 0), ["lift <|image_pad|><image> it"]), views_at([episode], 1))
    assert "lift (|image_pad|)(image) it" in text(chat.queries[0])


def test_restored_state_continues_identically() -> None:
    question = TEXT_QUESTIONS["rubric"]
    judge = VlmJudge(Scripted(lambda query: Answer(text=f"ANSWER: {brightness(query) % 5 + 1}")), question)
    episodes = [ramp(6, views=("front", "wrist")), ramp(6, views=("front", "wrist"), start=3)]
    state = judge.reset(views_at(episodes, 0), ["a", "b"], goal=views_at(episodes, 5))
    for t in range(1, 4):
        _, state = judge.step(state, views_at(episodes, t))
    assert isinstance(state, SerializableState)
    restored = judge.reset(views_at(episodes[:1], 5), ["c"]).from_state_dict(state.state_dict())
    next_tensors, restored_next_tensors = (
        VlmJudge(Scripted(judge.chat.answer), question).step(s, views_at(episodes, 4))[1].state_dict()
        for s in (state, restored)
    )
    assert next_tensors.keys() == restored_next_tensors.keys()
    for name, tensor in next_tensors.items():
        assert tensor.equal(restored_next_tensors[name]), name
    swapped = restored.take(np.array([1, 0])).put(np.array([0]), restored.take(np.array([0])))
    assert [row.instruction for row in swapped.contexts] == ["a", "a"]


def test_wrong_lengths_and_views_are_rejected() -> None:
    judge = VlmJudge(Scripted(percent), ProgressQuestion(), InputSpec(views=("front",)))
    front, top = ramp(3), ramp(3, views=("top",))
    state = judge.reset(views_at([front], 0), ["a"])
    with pytest.raises(UserError, match="one instruction"):
        judge.reset(views_at([front], 0), ["a", "b"])
    with pytest.raises(UserError, match="step needs views of 1 environments, got 2"):
        judge.step(state, views_at([front, front], 1))
    with pytest.raises(UserError, match="started with the views front, got top"):
        judge.step(state, views_at([top], 1))
