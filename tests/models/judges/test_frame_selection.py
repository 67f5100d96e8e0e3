"""`judge.frames=relevant`: a query shows the frames that are relevant and new, not evenly spaced ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from models.judges.scripted import Scripted, images
from tiny_clip import save_tiny_clip

from embodied_rm.errors import UserError
from embodied_rm.models.clip_similarity import ClipSimilarity
from embodied_rm.models.in_context.frozen_encoder import FrozenEncoder, open_frozen_encoder
from embodied_rm.models.judges.chat import Answer, Query
from embodied_rm.models.judges.frame_encoders import ClipFrameEncoder, ImageFrameEncoder, open_frame_encoder
from embodied_rm.models.judges.frame_history import FrameHistory, MultiViewFrame
from embodied_rm.models.judges.frame_selection import RelevantFrames, choose_greedily
from embodied_rm.models.judges.judge_config import JudgeConfig, judge_digest
from embodied_rm.models.judges.judge_state import EpisodeContext
from embodied_rm.models.judges.questions import MAX_HISTORY_FRAMES, RubricQuestion, TrueLogprobQuestion
from embodied_rm.models.judges.readings import ThreeReadings
from embodied_rm.models.judges.vlm_judge import VlmJudge
from embodied_rm.models.pretrained_weights import EFFICIENTNET_LITE0
from embodied_rm.models.scoring import episode_views, score_episodes, score_video
from embodied_rm.types import Episode, Frames

LENGTH = 200
SIDE = 32


class CountingEncoder(FrozenEncoder):
    """The pretrained encoder; counts the images that it encodes."""

    def __init__(self) -> None:
        self.__dict__.update(vars(open_frozen_encoder()))
        self.num_images = 0

    def encode(self, images: Frames) -> list[torch.Tensor]:
        self.num_images += len(images)
        return super().encode(images)


def film(event: Sequence[int] = (), length: int = LENGTH) -> Episode:
    """Return a video of a disk that moves slowly; at the times `event` a second one of another color is there."""
    y, x = np.mgrid[:SIDE, :SIDE]
    frames = np.full((length, SIDE, SIDE, 3), 90, np.uint8)
    for time in range(length):
        frames[time][(y - 8) ** 2 + (x - 5 - 20 * time / LENGTH) ** 2 < 16] = (220, 40, 40)
        if time in event:
            frames[time][(y - 23) ** 2 + (x - 16) ** 2 < 25] = (40, 60, 230)
        frames[time, 0, 0] = (time, 1, 2)  # the time of the frame
    return Episode(name="film", views={"front": frames}, instruction="push the red disk", fps=10.0)


def image_times(query: Query) -> list[int]:
    """Return the times of the images of a query."""
    return [int(image[0, 0, 0]) for image in images(query)]


def grade(query: Query) -> Answer:
    """Answer with a grade that depends on the frames that are shown."""
    return Answer(text=f"ANSWER: {1 + sum(image_times(query)) % 5}")


def relevant_judge(answer: Callable[[Query], Answer] = grade) -> VlmJudge:
    """Return a judge with frames=relevant and the pretrained encoder."""
    return VlmJudge(Scripted(answer), RubricQuestion(selection=RelevantFrames(frame_encoder())))


@cache
def frame_encoder() -> ImageFrameEncoder:
    return ImageFrameEncoder(open_frozen_encoder())


@pytest.fixture(scope="module")
def queries() -> list[Query]:
    """Queries about every frame of a video with a brief event, from time 1 on."""
    judge = relevant_judge()
    score_episodes(judge, [film(EVENT)])
    return judge.chat.queries


EVENT = (120, 121, 122)


def test_a_brief_event_is_visible_from_its_first_frame_to_the_end(queries: list[Query]) -> None:
    for time in range(EVENT[0], LENGTH):
        assert set(EVENT) & set(image_times(queries[time - 1])), time


def test_even_frames_miss_it() -> None:
    judge = VlmJudge(Scripted(grade), RubricQuestion())
    score_episodes(judge, [film(EVENT)])
    assert not set(EVENT) & set(image_times(judge.chat.queries[-1]))


def test_frames_are_in_order_of_time_and_never_more_than_the_maximum(queries: list[Query]) -> None:
    for time, query in enumerate(queries, start=1):
        times = image_times(query)
        assert times == sorted(set(times)) and len(times) == min(time + 1, MAX_HISTORY_FRAMES)


def test_the_first_previous_and_current_frame_are_always_there(queries: list[Query]) -> None:
    for time, query in enumerate(queries, start=1):
        assert {0, time - 1, time} <= set(image_times(query))


def test_the_previous_frame_is_the_last_scored_one() -> None:
    def answer(query: Query) -> Answer:
        return Answer(text="no idea") if image_times(query)[-1] in range(20, 33) else grade(query)

    judge = relevant_judge(answer)
    score_episodes(judge, [film(length=40)])
    for query in judge.chat.queries[20:33]:
        assert 19 in image_times(query)


def test_later_frames_do_not_change_the_choice(queries: list[Query]) -> None:
    for length in (30, 121, 150):
        judge = relevant_judge()
        score_episodes(judge, [film(EVENT, length)])
        chosen = [image_times(query) for query in judge.chat.queries]
        assert chosen == [image_times(query) for query in queries[: length - 1]]


def test_scores_offline_and_online_are_equal() -> None:
    def answer(query: Query) -> Answer:
        return Answer(text="no idea") if image_times(query)[-1] % 7 in (2, 3) else grade(query)

    episode = film((20, 21), 50)
    (online,) = score_episodes(relevant_judge(answer), [episode])
    offline = score_video(relevant_judge(answer), episode.instruction, [episode_views(episode)])
    assert online.progress.tolist() == offline.progress.tolist() and not online.valid.all()


def test_a_restored_state_asks_the_same_questions() -> None:
    judge, restored = relevant_judge(), relevant_judge()
    episode = film((20, 21), 50)
    views = episode_views(episode)
    state = judge.reset(views.select(np.array([0])), [episode.instruction])
    _, state = judge.step_many(state, views.select(np.arange(1, 40)))
    state_copy = state.from_state_dict(state.state_dict())
    outputs = [
        model.step_many(s, views.select(np.arange(40, 50)))[0] for model, s in ((judge, state), (restored, state_copy))
    ]
    assert [image_times(q) for q in judge.chat.queries[39:]] == [image_times(q) for q in restored.chat.queries]
    assert outputs[0].progress.tolist() == outputs[1].progress.tolist()


def test_each_frame_is_encoded_once() -> None:
    encoder = CountingEncoder()
    question = ThreeReadings(RubricQuestion(selection=RelevantFrames(ImageFrameEncoder(encoder))))
    score_episodes(VlmJudge(Scripted(grade), question), [film(length=40)])
    assert encoder.num_images == 40


def test_a_frame_that_left_the_history_is_in_its_place_in_time() -> None:
    """The last scored frame of a thinned history is shown between its neighbors."""
    frames = [MultiViewFrame(image[None], np.ones(1, bool)) for image in film(length=100).views["front"]]
    history = FrameHistory(capacity=8)
    for frame in frames[:-1]:
        history = history.append(frame)
    context = EpisodeContext(
        instruction="push", view_names=("front",), history=history, first=frames[0], previous=frames[45],
        previous_time=45, current=frames[-1],
    )  # fmt: skip
    selection = RelevantFrames(frame_encoder())
    for max_frames in range(1, 12):
        times = [int(frame.frames[0, 0, 0, 0]) for frame in selection.select(context, max_frames)]
        assert times == sorted(times) and len(times) <= max_frames and times[-1] == 99
        assert {45}.issubset(times) == (max_frames >= 3) and (0 in times) == (max_frames >= 2)


def test_a_still_video_has_one_image_of_each_kind() -> None:
    """Frames that equal a chosen one add nothing."""
    still = film(length=30).views["front"][:1].repeat(30, axis=0)
    judge = relevant_judge()
    score_episodes(judge, [Episode(name="still", views={"front": still}, instruction="wait", fps=10.0)])
    assert max(len(images(query)) for query in judge.chat.queries) == MAX_HISTORY_FRAMES
    assert len(images(judge.chat.queries[-1])) == 3


unit_rows = st.integers(0, 2**32 - 1).map(
    lambda seed: np.random.default_rng(seed).standard_normal((24, 5)).astype("f4")
)


@given(unit_rows, st.sets(st.integers(0, 23), min_size=1, max_size=3), st.integers(3, 30))
def test_each_choice_has_the_largest_relevance_times_novelty(rows: np.ndarray, required: set[int], most: int) -> None:
    relevance = np.abs(rows[:, 0]) + np.float32(0.1)
    chosen = choose_greedily(rows, relevance, sorted(required), most).tolist()
    assert chosen[: len(required)] == sorted(required) and len(chosen) == len(set(chosen)) == min(most, 24)
    for count in range(len(required), len(chosen)):
        distance = np.linalg.norm(rows[:, None] - rows[chosen[:count]], axis=2).min(axis=1)
        assert (relevance * distance)[chosen[count]] == pytest.approx((relevance * distance).max())


@given(unit_rows, st.integers(2, 12))
def test_novelty_alone_covers_the_video(rows: np.ndarray, most: int) -> None:
    """No frame is farther from the chosen ones than these are from each other (Gonzalez 1985)."""
    chosen = choose_greedily(rows, np.ones(24, np.float32), [0], most)
    radius = np.linalg.norm(rows[:, None] - rows[chosen], axis=2).min(axis=1).max()
    gaps = np.linalg.norm(rows[chosen][:, None] - rows[chosen], axis=2)[np.triu_indices(most, 1)]
    assert radius <= gaps.min() + 1e-5


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory) -> Path:
    return save_tiny_clip(tmp_path_factory.mktemp("clip"))


def test_relevance_is_the_probability_ratio_of_the_model(clip_folder: Path) -> None:
    model = ClipSimilarity(f"local-dir:{clip_folder}")
    encoder = open_frame_encoder(f"local-dir:{clip_folder}")
    frames = [MultiViewFrame(image[None], np.ones(1, bool)) for image in film(EVENT).views["front"][115:125]]
    relevance = encoder.relevance(encoder.embed(frames), "push the blue disk")
    logits = (
        model.encode_image(np.concatenate([f.frames for f in frames])) @ model.encode_text(["push the blue disk"])[0]
    )
    probability = (model.logit_scale * logits).softmax(dim=0).numpy()
    assert model.logit_scale == pytest.approx(1 / 0.07, rel=1e-4)
    np.testing.assert_allclose(relevance, probability / probability.max(), rtol=1e-3)
    assert relevance.max() == 1 and (relevance > 0).all()


def test_an_instruction_decides_what_is_relevant(clip_folder: Path) -> None:
    encoder = ClipFrameEncoder(ClipSimilarity(f"local-dir:{clip_folder}"))
    rng = np.random.default_rng(0)
    frames = [MultiViewFrame(rng.integers(0, 255, (1, SIDE, SIDE, 3), np.uint8), np.ones(1, bool)) for _ in range(30)]
    embeddings = encoder.embed(frames)
    chosen = {
        text: choose_greedily(embeddings, encoder.relevance(embeddings, text), [0], 5).tolist()
        for text in ("lift the red cube", "close the drawer", "press the button")
    }
    assert len(set(map(tuple, chosen.values()))) > 1


def test_a_view_that_sees_nothing_does_not_count() -> None:
    first, second = film(EVENT).views["front"][[100, 121]]
    blank = np.zeros_like(first)
    one, with_blank, both = (
        frame_encoder().embed([MultiViewFrame(np.stack(views), np.array([view is not blank for view in views]))])[0]
        for views in ((first,), (first, blank), (first, second))
    )
    assert np.array_equal(one, with_blank) and not np.allclose(one, both)
    assert np.linalg.norm(both) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {"question": "progress"},
        {"question": "shuffled"},
        {"question": "completion", "answer_mode": "logprobs"},
        {"type": "topreward"},
        {"type": "rewind"},
    ],
)
def test_other_questions_and_judges_are_refused(settings: dict) -> None:
    with pytest.raises(UserError, match=r"judge\.frames=relevant .* rubric or true_logprob"):
        JudgeConfig(**{"type": "question", "folder": Path("x"), "frames": "relevant", **settings})


def test_unknown_values_are_refused() -> None:
    with pytest.raises(UserError, match=r"judge\.frames"):
        JudgeConfig(type="question", question="rubric", frames="novel")
    with pytest.raises(UserError, match=r"a setting of judge\.frames=relevant"):
        JudgeConfig(type="question", question="rubric", frame_encoder="local-dir:clip")
    with pytest.raises(UserError, match=r"judge\.frame_encoder=resnet50.*efficientnet_lite0, local-dir:"):
        open_frame_encoder("resnet50")
    assert JudgeConfig.frame_encoder == EFFICIENTNET_LITE0.name


def test_the_digest_depends_on_the_choice_and_on_the_weights_that_make_it(clip_folder: Path, tmp_path: Path) -> None:
    even = JudgeConfig(type="question", question="rubric", url="http://localhost:1", model="m")
    relevant = replace(even, frames="relevant")
    by_text = replace(relevant, frame_encoder=f"local-dir:{clip_folder}")
    moved = save_tiny_clip(tmp_path)
    assert len({judge_digest(config) for config in (even, relevant, by_text)}) == 3
    assert judge_digest(by_text) == judge_digest(replace(by_text, frame_encoder=f"local-dir:{moved}"))
    description = json.loads((moved / "open_clip_config.json").read_text())
    (moved / "open_clip_config.json").write_text(json.dumps({**description, "changed": True}))
    assert judge_digest(by_text) != judge_digest(replace(by_text, frame_encoder=f"local-dir:{moved}"))


def test_both_questions_about_a_video_take_a_selection() -> None:
    selection = RelevantFrames(frame_encoder())
    for question in (RubricQuestion(), RubricQuestion(use_logprobs=True), TrueLogprobQuestion()):
        other = question.with_selection(selection)
        assert type(other) is type(question) and other.selection is selection
        assert other.uses_previous_frame and not question.uses_previous_frame
        assert getattr(other, "use_logprobs", None) == getattr(question, "use_logprobs", None)
