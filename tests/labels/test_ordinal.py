"""Laws of RoboReward's scores."""

from __future__ import annotations

import numpy as np
import pytest
from annotated import demonstrations, given_up
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.errors import DataError
from embodied_rm.labels.ordinal import RUBRIC, label, rubric_score, score_to_reward

shares = st.floats(0, 1, width=32)


@given(shares)
def test_a_score_is_on_the_rubric_and_its_reward_at_most_a_quarter_below(progress):
    given_score = rubric_score(np.float32(progress))
    assert given_score in RUBRIC
    assert 0 <= progress - score_to_reward(given_score) < 0.25
    assert (given_score == 5) == (progress == 1)


@given(shares, shares)
def test_scores_keep_the_order(p, q):
    assert (p < q) <= (rubric_score(np.float32(p)) <= rubric_score(np.float32(q)))


@given(demonstrations())
def test_the_longer_a_clip_of_a_success_the_higher_its_score(shown):
    targets = label([shown])[0]
    assert (np.diff(targets.progress) >= 0).all() and targets.progress_known.all()
    assert targets.progress[-1] == score_to_reward(np.array(5)), "a success is a 5"


@given(demonstrations())
def test_only_the_outcome_is_told(shown):
    targets = label([shown])[0]
    assert np.flatnonzero(targets.success_known).tolist() == [len(shown) - 1] and targets.success[-1]
    with pytest.raises(DataError, match=r"failure.*progress is unknown.*embodied-rm collect"):
        label([given_up(shown)])
