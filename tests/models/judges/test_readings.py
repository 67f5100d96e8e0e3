"""Three readings of each frame: their median, and their disagreement as the uncertainty."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models.judges.scripted import Scripted, brightness, ramp

from embodied_rm.errors import UserError
from embodied_rm.models.judges.chat import Answer, Query
from embodied_rm.models.judges.judge_config import JudgeConfig
from embodied_rm.models.judges.questions import TEXT_QUESTIONS, ProgressQuestion
from embodied_rm.models.judges.readings import READERS, ThreeReadings
from embodied_rm.models.judges.vlm_judge import VlmJudge
from embodied_rm.models.scoring import score_episodes
from embodied_rm.rewards.reward_config import RewardConfig

OFFSETS = dict(zip(READERS, (-10, 2, 20), strict=True))


def read(query: Query) -> Answer:
    """Answer with the brightness, changed by the reader."""
    offset = next(offset for reader, offset in OFFSETS.items() if query.system.endswith(reader))
    return Answer(text=f"<progress>{min(max(brightness(query) + offset, 0), 100)}%</progress>")


def test_the_value_is_the_median_and_the_uncertainty_half_the_range() -> None:
    chat = Scripted(read)
    (curve,) = score_episodes(VlmJudge(chat, ThreeReadings(ProgressQuestion())), [ramp(6, start=20)])
    assert curve.progress[1:] == pytest.approx(np.arange(0.32, 0.73, 0.1), abs=1e-6)
    assert curve.uncertainty[1:] == pytest.approx(np.full(5, 0.15), abs=1e-6) and curve.uncertainty[0] == 0
    assert len(chat.queries) == 15


def test_agreeing_readers_are_one_reading() -> None:
    judge, question = ramp(8), ProgressQuestion()
    plain = Scripted(lambda query: Answer(text=f"<progress>{brightness(query)}%</progress>"))
    (one,) = score_episodes(VlmJudge(plain, question), [judge])
    (three,) = score_episodes(VlmJudge(plain, ThreeReadings(question)), [judge])
    assert three.progress == pytest.approx(one.progress) and not three.uncertainty.any()


def test_a_missing_reading_leaves_the_frame_unscored() -> None:
    def answer(query: Query) -> Answer:
        return Answer(text="no idea") if query.system.endswith(READERS[1]) and brightness(query) == 30 else read(query)

    (curve,) = score_episodes(VlmJudge(Scripted(answer), ThreeReadings(ProgressQuestion())), [ramp(6)])
    assert curve.valid.tolist() == [True, True, True, False, True, True]


def test_the_uncertainty_penalty_of_a_reward_applies() -> None:
    (curve,) = score_episodes(VlmJudge(Scripted(read), ThreeReadings(ProgressQuestion())), [ramp(6, start=20)])
    penalty = RewardConfig(uncertainty_penalty=1.0).uncertainty_penalty
    assert (curve.progress - penalty * curve.uncertainty < curve.progress)[1:].all()


@pytest.mark.parametrize("name", TEXT_QUESTIONS)
def test_every_question_can_be_read_three_times(name: str) -> None:
    question = TEXT_QUESTIONS[name]
    readings = ThreeReadings(question)
    for attribute in ("predicts_success", "uses_previous_frame", "needs_goal", "history_capacity"):
        assert getattr(readings, attribute) == getattr(question, attribute)


@pytest.mark.parametrize(
    "settings", [{"readings": 2}, {"readings": 3, "type": "vlac"}, {"readings": 3, "question": "shuffled"}]
)
def test_other_readings_are_refused(settings: dict) -> None:
    with pytest.raises(UserError, match=r"judge\.readings=\d: it is 1, or 3 for judge=question"):
        JudgeConfig(**{"type": "question", "folder": Path("x"), **settings})
