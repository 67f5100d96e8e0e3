"""RoboReward scores."""

from __future__ import annotations

import numpy as np
import pytest
from annotated_episodes import abandoned, demonstrations
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.errors import DataError
from embodied_rm.labels.ordinal import RUBRIC, label, rubric_score, score_to_reward

fractions = st.floats(0, 1, width=32)


@given(fractions)
def test_score_is_in_the_rubric_and_its_reward_at_most_a_quarter_lower(progress):
    score = rubric_score(np.float32(progress))
    assert score in RUBRIC
    assert 0 <= progress - score_to_reward(score) < 0.25
    assert (score == 5) == (progress == 1)


@given(fractions, fractions)
def test_scores_are_monotonic(p, q):
    assert (p < q) <= (rubric_score(np.float32(p)) <= rubric_score(np.float32(q)))


@given(demonstrations())
def test_longer_clips_of_a_success_score_higher(episode):
    targets = label([episode])[0]
    assert (np.diff(targets.progress) >= 0).all() and targets.progress_known.all()
    assert targets.progress[-1] == score_to_reward(np.array(5)), "a success is a 5"


@given(demonstrations())
def test_success_is_known_at_the_last_frame_only(episode):
    targets = label([episode])[0]
    assert np.flatnonzero(targets.success_known).tolist() == [len(episode) - 1] and targets.success[-1]
    with pytest.raises(DataError, match=r"'ordinal' needs true progress.*in all 1 episodes.*annotate"):
        label([abandoned(episode)])
